"""Kernels as PyTorch operations on a GPU: launched as CUDA graphs, and stamped one by one."""
