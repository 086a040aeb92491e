"""Power inside kernels from slow sensors (FinGraV, Singhania et al.), one file for each of its steps.

1 guidance      time a few executions; how many runs, readings and how fine a bin they call for
2 collect       round trips, executions and power readings of runs of a burst
3 settle        executions until time is steady (SSE) and until power is (SSP)
4 collect       the runs themselves
5 golden        keep the runs whose execution times are alike
6 clocks        host and GPU clock told together: offset and drift
7 profile       more runs where readings of interest are too few
8 surface       stitch what is left into one power over executions and the time inside them
"""
