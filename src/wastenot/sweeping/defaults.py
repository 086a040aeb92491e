"""How a sweep measures unless told otherwise: the same in Python and on the command line, which reads it without NumPy."""

from __future__ import annotations

CORE_STEP_MHZ = 210.0
"""Step between the core clocks of a grid, as in the kernel-level DVFS paper (§4)."""

WARM_UP_S = 5.0
"""How long a kernel runs at a setting before it is measured."""

WINDOW_S = 5.0
"""Longest time that a kernel is measured at a setting."""
