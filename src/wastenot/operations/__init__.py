"""Kernels as PyTorch operations that run: those by formula, and those captured from a model."""
