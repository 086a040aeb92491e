"""Training jobs that come back: which batch size and which setting reach the target for the least energy and time."""
