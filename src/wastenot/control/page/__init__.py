"""The page of a run: what became of a plan applied to a job."""
