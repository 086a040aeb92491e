"""The page of what natural clocks say: clocks after products, time and power by clock, where the joules go."""
