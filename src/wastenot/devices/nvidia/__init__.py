"""NVIDIA GPUs: sensors, clock control that always restores what it found, and the instrument."""
