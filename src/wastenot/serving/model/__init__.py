"""Serving: what an engine's steps cost, what its operator should choose, and how its clock is steered.

A *profile* says what a prefill step and a decode step cost at each setting. From it come the frontier of an engine (latency
against energy per token, over batch sizes, parallel degrees and clocks), recommendations within deadlines, and the
simulator in which policies that steer the clock stand beside each other.
"""
