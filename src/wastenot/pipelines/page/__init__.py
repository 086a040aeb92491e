"""The page of a pipeline plan: its schedule, power, frontier and clocks."""
