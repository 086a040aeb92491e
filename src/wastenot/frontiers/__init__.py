"""Time-energy frontiers: points, the exact solver, and the algebra that composes them."""
