"""The simulated GPU: the reference device, and a twin of a real card once fitted to a sweep of it."""
