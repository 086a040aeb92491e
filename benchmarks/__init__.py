"""Benchmarks of wastenot itself, run by `make bench`."""
