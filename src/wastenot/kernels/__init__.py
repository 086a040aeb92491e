"""Kernels and their clocks: sweeps searched, plans refined and validated, costs forecast, natural clocks, latencies."""
