"""Trials of what must hold whatever clients, drivers, disks and other users do; ``benchmarks/bench_safety.py`` runs them."""
