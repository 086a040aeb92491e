"""A plan's overview: all numbers that its page shows, and the curves of what other plans would give."""
