"""The page of a run: what became of a plan at work in a job."""
