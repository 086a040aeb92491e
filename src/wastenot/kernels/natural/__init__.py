"""Time and power of kernels as functions of the clock, measured at clocks that a card goes through by itself."""
