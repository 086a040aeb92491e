"""From which execution on time is steady (SSE), and from which power is (SSP). FinGraV's step 3.

    time    █▆▅▄▄▄▄▄▄▄▄▄▄      SSE: the first execution after which times no longer improve
    power   ▂▃▅▆▆▇▇▇████▇      SSP: the first from which on power stays within a margin of where it ends
               └SSE └SSP

Both terms are FinGraV's (Singhania et al., §IV-A); the margins are ours, as the paper gives none.
"""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.profiles.surface import Surface

SSP_MARGIN = 0.02
"""Within which the power of SSP and of all later executions is, of the steady power, where a sensor averages over many."""

FIRST_UNITS = 4
"""Executions that the search begins with (FinGraV §IV-B, step 3)."""

FLAT = 0.25
"""Movement from the third to the last quarter of a run that still counts as flat, in SSP margins."""

MAX_FLAT_ERROR = 0.15
"""Standard error, in margins, with which this movement has to be known."""

SETTLED = FLAT * SSP_MARGIN
"""Within which the power of SSP is, where a sensor shows single units: no further from the end than the end is flat."""

FLAT_AVERAGED = 0.6
"""As :data:`FLAT`, for sensors that average over many units, whose readings say less about each."""

_CERTAIN = 3.0  # standard errors from which on a swing is beyond doubt


def steady_execution(time_s: FloatArray, margin: float) -> int:
    """The first unit after which times no longer improve: no later median is lower by more than half the margin.

    Args:
        time_s: of each unit in each run; shape (runs, units).
        margin: of the bins, as a fraction.
    """
    typical = np.median(time_s, axis=0)
    best = float(np.median(typical[len(typical) // 2 :]))
    slow = np.flatnonzero(typical > best * (1.0 + 0.5 * margin))
    return min(int(slow[-1]) + 1 if len(slow) else 0, len(typical) - 1)


def movement(surface: Surface, units: int) -> tuple[float, float]:
    """How much power moves from the third to the last quarter of a run, and the standard error, in margins."""
    quarter = max(units // 4, 1)
    change, error = surface.change((units - 2 * quarter, units - quarter), (units - quarter, units))
    allowed = SSP_MARGIN * _plateau_w(surface, units)
    return abs(change) / allowed, error / allowed


def steady_power(surface: Surface, units: int, first: int, margin: float = SSP_MARGIN) -> int:
    """The first unit from which on mean power stays within a margin of where it ends, by bisection.

    Args:
        surface: of runs whose power was flat in the end.
        units: of a run.
        first: SSE; SSP does not come before it.
        margin: as a fraction of the steady power.
    """
    plateau_w = _plateau_w(surface, units)
    far = np.abs(surface.unit_means(0, units).power_w - plateau_w) > margin * plateau_w
    steady = ~np.logical_or.accumulate(far[::-1])[::-1]
    low, high = first, units - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if steady[middle] else (middle + 1, high)
    return low


def steady_power_by_octaves(surface: Surface, units: int, first: int) -> int:
    """The same by means over octaves, where power swings about its plateau or single units are not known precisely enough.

    Args:
        surface: of the runs.
        units: of a run.
        first: SSE.

    Returns:
        The first unit from which on the mean of each octave is within the margin of that of the last.
    """
    plateau_w, _ = surface.mean(units // 2, units)
    unit = steady_from = units // 2
    while unit > max(first, 1):
        unit //= 2
        if abs(surface.mean(unit, 2 * unit)[0] - plateau_w) > SSP_MARGIN * plateau_w:
            break
        steady_from = unit
    return max(steady_from, first)


def swings(surface: Surface, units: int) -> bool:
    """Whether power certainly leaves its plateau by more than the margin in the second half of a run."""
    plateau_w, _ = surface.mean(units // 2, units)
    band = surface.unit_means(units // 2, units)
    return bool(np.any(np.abs(band.power_w - plateau_w) > SSP_MARGIN * plateau_w + _CERTAIN * band.error_w))


def _plateau_w(surface: Surface, units: int) -> float:
    quarter = max(units // 4, 1)
    return float(surface.unit_means(units - quarter, units).power_w.mean())
