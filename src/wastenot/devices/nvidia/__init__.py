"""NVIDIA GPUs: sensors, clocks that are always given back, and kernels that run."""
