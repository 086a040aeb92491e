"""A pipeline's plan at work; what programs need of it imports nothing but Python's own library."""
