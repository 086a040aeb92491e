"""Measurements of the project itself; `make bench` runs them."""
