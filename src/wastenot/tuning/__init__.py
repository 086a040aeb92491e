"""Tuning: what needs both a device and a plan: search with few measurements, validate, refine, transfer."""
