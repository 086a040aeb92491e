"""Any PyTorch model's operations as a workload: recording them, keeping them in a file, and what they leave out."""
