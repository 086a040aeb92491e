"""PyTorch on a GPU: tasks as CUDA graphs run back to back, and bursts with a timestamp for each execution."""
