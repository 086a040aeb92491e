"""What is shown of recurring jobs, on terminals and on a page."""
