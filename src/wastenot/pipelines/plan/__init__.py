"""Plans of a pipeline."""
