"""Measuring: energy of a kernel from slow sensors, and sweeps. Speaks to devices by their protocol only."""
