"""Switching latency as tables and a figure."""
