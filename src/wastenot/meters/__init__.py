"""Energy of windows of time and of whole programs, from counters that move in steps."""
