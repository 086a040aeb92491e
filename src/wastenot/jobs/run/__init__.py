"""A run of a job at work in a program."""
