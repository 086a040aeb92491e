"""Curves in logarithms whose slopes are bounded: what physics says about time and power by clock, whatever the kernel.

    log time    ╲__         a lower clock never makes a call faster (slope at most 0),
                   ╲__      and never costs it more cycles (slope at least -1)
                log clock

Whatever is estimated or drawn is moved to the nearest curve that keeps to these bounds.
"""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import FloatArray

TIME_SLOPES = (-1.0, 0.0)
"""Least and greatest slope of log time over log clock."""

POWER_SLOPES = (0.0, 4.0)
"""The same of log power: a higher clock never draws less, and not more than activity × voltage² × clock can grow."""

_ROUNDS = 100  # of alternating projections; they converge geometrically
_SETTLED = 1e-9


def nearest_within(values: FloatArray, position: FloatArray, slopes: tuple[float, float]) -> FloatArray:
    """The nearest curves (least squares) whose slopes between neighbours lie within bounds.

    Dykstra's alternating projections onto the two cones of monotone curves that the bounds describe (Boyle and Dykstra,
    A method for finding projections onto the intersection of convex sets in Hilbert spaces, 1986).

    Args:
        values: shape (curves, knots).
        position: of the knots, ascending; shape (knots,).
        slopes: least and greatest.
    """
    least, greatest = slopes
    nearest = np.array(values, dtype=float)
    if nearest.shape[1] < 2:
        return nearest
    rising, falling = np.zeros_like(nearest), np.zeros_like(nearest)
    for _ in range(_ROUNDS):
        last_rising, last_falling = rising, falling
        steep = nearest + rising
        nearest = _isotonic(steep - least * position) + least * position
        rising = steep - nearest
        flat = nearest + falling
        nearest = greatest * position - _isotonic(greatest * position - flat)
        falling = flat - nearest
        moved = max(np.abs(rising - last_rising).max(initial=0.0), np.abs(falling - last_falling).max(initial=0.0))
        if moved < _SETTLED:  # curves may stand still while what was projected away still moves
            break
    return nearest


def _isotonic(values: FloatArray) -> FloatArray:
    """The nearest rising curves, by the max–min formula: over all beginnings, the least mean up to any later end."""
    knots = values.shape[1]
    sums = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)
    length = np.arange(1, knots + 1)[None, :] - np.arange(knots)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (sums[:, None, 1:] - sums[:, :-1, None]) / length
    means = np.where(length > 0, means, np.inf)  # of first to last, shape (curves, first, last)
    least = np.minimum.accumulate(means[:, :, ::-1], axis=2)[:, :, ::-1]  # over ends at or after a knot
    within = np.where(length > 0, least, -np.inf)
    return np.asarray(within.max(axis=1))
