"""Switching latency, measured: from the request of a clock or power limit until it is in effect (the method of LATEST)."""
