"""Workloads: the kernels that an LLM runs, by formula, in order of execution."""
