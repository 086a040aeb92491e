"""Policies that steer the clock of one engine."""
