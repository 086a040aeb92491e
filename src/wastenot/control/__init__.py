"""A plan at work in a running job: schedules carried out, the slowdown guarded, the saving proved."""
