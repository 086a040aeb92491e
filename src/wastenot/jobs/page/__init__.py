"""What is shown of jobs that come back, on terminals and on a page."""
