"""What the next run of a job should have."""
