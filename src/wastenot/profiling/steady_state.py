"""From which execution on time is steady (SSE), and from which power is (SSP). FinGraV's step 3.

    time    █▆▅▄▄▄▄▄▄▄▄▄▄      SSE: the first execution after which times get no better
    power   ▂▃▅▆▆▇▇▇████▇      SSP: the first from which on power stays within a margin of where it ends
               └SSE └SSP

Both are FinGraV's words (Singhania et al., §IV-A); the margins are ours, the paper gives none.
"""

from __future__ import annotations

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.profiling.surface import Surface

SSP_MARGIN = 0.02
"""Share of the steady power that the power of an SSP execution is within, from it on."""

FIRST_UNITS = 4
"""Executions that the search begins with (FinGraV §IV-B, step 3)."""

FLAT = 0.25
"""Margins that power may move by from the third to the last quarter of a run, and count as flat."""

FLAT_KNOWN = 0.15
"""Standard error, in margins, that such a movement has to be known to."""

FLAT_OF_MEANS = 0.6
"""The same as :data:`FLAT` for sensors that average over many units, whose readings say less of each."""

_DOUBTS = 3.0  # standard errors by which a swing is beyond doubt


def steady_execution(time_s: FloatArray, margin: float) -> int:
    """The first unit after which times get no better: no later median is lower by more than half the margin.

    Args:
        time_s: of each unit in each run; shape (runs, units).
        margin: of the bins, as a share.
    """
    typical = np.median(time_s, axis=0)
    best = float(np.median(typical[len(typical) // 2 :]))
    slow = np.flatnonzero(typical > best * (1.0 + 0.5 * margin))
    return min(int(slow[-1]) + 1 if len(slow) else 0, len(typical) - 1)


def movement(surface: Surface, units: int) -> tuple[float, float]:
    """By how much power moves from the third to the last quarter of a run, and the standard error, in margins."""
    quarter = max(units // 4, 1)
    change, error = surface.change((units - 2 * quarter, units - quarter), (units - quarter, units))
    allowed = SSP_MARGIN * _plateau_w(surface, units)
    return abs(change) / allowed, error / allowed


def steady_power(surface: Surface, units: int, first: int) -> int:
    """The first unit from which on mean power stays within the margin of where it ends, by halving.

    Args:
        surface: of runs whose power was flat in the end.
        units: of a run.
        first: SSE, before which no SSP is.
    """
    plateau_w = _plateau_w(surface, units)
    far = np.abs(surface.mean(0, units).power_w - plateau_w) > SSP_MARGIN * plateau_w
    settled = ~np.logical_or.accumulate(far[::-1])[::-1]
    low, high = first, units - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if settled[middle] else (middle + 1, high)
    return low


def steady_octaves(surface: Surface, units: int, first: int) -> int:
    """The same by means over octaves, where power swings about its plateau or is not known well enough unit by unit.

    Args:
        surface: of runs.
        units: of a run.
        first: SSE.

    Returns:
        The first unit from which on each octave's mean is within the margin of that of the last.
    """
    plateau_w, _ = surface.range(units // 2, units)
    unit = found = units // 2
    while unit > max(first, 1):
        unit //= 2
        if abs(surface.range(unit, 2 * unit)[0] - plateau_w) > SSP_MARGIN * plateau_w:
            break
        found = unit
    return max(found, first)


def swings(surface: Surface, units: int) -> bool:
    """Whether power leaves its plateau by more than the margin, beyond doubt, in the second half of a run."""
    plateau_w, _ = surface.range(units // 2, units)
    band = surface.mean(units // 2, units)
    return bool(np.any(np.abs(band.power_w - plateau_w) > SSP_MARGIN * plateau_w + _DOUBTS * band.error_w))


def _plateau_w(surface: Surface, units: int) -> float:
    quarter = max(units // 4, 1)
    return float(surface.mean(units - quarter, units).power_w.mean())
