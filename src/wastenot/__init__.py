"""wastenot: finds the energy that a GPU wastes while it trains or serves an LLM, and removes it."""
