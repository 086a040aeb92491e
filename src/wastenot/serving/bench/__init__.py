"""Servers measured: requests sent to any OpenAI-compatible server, its latencies, its energy, its steady state."""
