"""Power inside kernels from slow sensors (FinGraV, Singhania et al.).

The steps of the method, and where they are:

1 guidance       how many runs and readings, and how fine a bin, an execution time calls for
2 session, runs  clock round trips, executions and power readings of a burst
3 steady_state   executions until time is steady (SSE) and until power is (SSP)
4 session        the runs themselves
5 runs           golden runs: those whose execution times are alike
6 runs           executions and readings on one clock
7 session        more runs where there are too few readings of interest
8 surface        stitching: one power over executions and inside them, from basis, design and residuals
"""
