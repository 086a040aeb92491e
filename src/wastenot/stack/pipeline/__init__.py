"""Pipeline-parallel training: schedules, profiles of stages, and plans for each rank."""
