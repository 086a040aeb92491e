"""What else a sweep tells of kernels: after one another, side by side, in another order."""
