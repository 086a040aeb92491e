"""What is learned of a job from its runs."""
