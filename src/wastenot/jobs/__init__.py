"""Recurring training jobs: which batch size and which setting reach the target for the least energy and time.

model      what is learned of a job: epochs to the target, cost of an epoch, whether it reaches the target at all
plan       what the next run should have, and why
run        a run at work: ``wn.job``, its GPUs, its meter, its other processes
tables     what a study keeps of jobs and their runs
page       the report on a job
callbacks  reporting epochs from other libraries' trainers
judge      traces of jobs, simulated with policies side by side
documents  what is printed and written as JSON
cli        ``wastenot job list`` and ``wastenot job show``
"""
