"""Pipeline-parallel training: clocks for each instruction of each stage, planned and applied.

model    what an iteration takes: instructions of stages and their frontiers, schedules, the graph of an iteration
plan     the clocks of least energy within a slowdown, kept with a confidence, as a driver can carry them out
run      a plan applied to the ranks of this machine, and the server that tells pipelines of stragglers
page     the report on a plan
cli      ``wastenot pipeline plan``; ``run/cli`` holds ``wastenot pipeline straggler``
"""
