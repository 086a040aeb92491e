"""What a power sensor does: update period, averaging window or lag, delay and its drift, noise."""
