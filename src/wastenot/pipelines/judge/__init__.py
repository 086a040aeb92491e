"""Pipelines on simulated GPUs, which tell whether a plan keeps what it says."""
