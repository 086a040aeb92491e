"""A plan applied to a running job: schedules carried out, the slowdown guarded, the saving proved."""
