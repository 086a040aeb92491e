"""Sweeps: time and energy of one kernel at one setting, and the filling of a study with them."""
