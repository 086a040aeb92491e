"""Analyses of a sweep beyond a plan: kernels after one another, side by side, and in another order."""
