"""The algebra above the kernel: pipelines."""
