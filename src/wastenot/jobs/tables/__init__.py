"""What a study keeps of jobs and of their runs."""
