"""To stand first on PYTHONPATH of programs that ``wastenot apply`` starts: its ``sitecustomize`` instruments them."""
