"""Workloads: the kernels that an LLM runs, modelled analytically, in order of execution."""
