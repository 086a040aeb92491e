"""Kernels as PyTorch operations that run: analytical ones, and those captured from a model."""
