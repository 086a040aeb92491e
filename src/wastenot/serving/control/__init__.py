"""Clocks of servers that run, set by what the servers say of themselves."""
