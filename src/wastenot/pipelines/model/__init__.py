"""What an iteration of a pipeline takes."""
