"""Readings of one run err together: a run is a little slower than others, its GPU a little warmer.

    run 1   ▇▇▇▇▇▇▇▇      reading = power · (1 + factor of the run) + noise
    run 2   ▆▆▆▆▆▆▆▆

Many readings of a long run so say much about the shape of its power, and little about its mean. How far factors scatter
follows from a first fit; readings are then turned so that what is left of them errs independently (generalised least
squares with one random effect; Harville, J. Am. Stat. Assoc. 72, 1977).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wastenot.arrays import FloatArray

_LEAST = 3  # runs of a kind that have enough readings to tell
_TELLS = 1.0  # squares of shares of full power that a run's readings add up to, from which it tells of its factor

Rows = tuple[FloatArray, FloatArray]


def without_factors(found: Sequence[Rows], explained_w: Sequence[FloatArray], idle_w: float) -> list[Rows]:
    """Readings of runs of one kind, turned so that they err independently.

    Args:
        found: rows and values of each run's readings.
        explained_w: what a first fit says of them.
        idle_w: power at rest, of which there is no factor.
    """
    full_w = max(max(float(np.max(power, initial=idle_w)) for power in explained_w) - idle_w, 1e-9)
    shares = [(power - idle_w) / full_w for power in explained_w]
    left = [values - power for (_, values), power in zip(found, explained_w, strict=True)]
    squares = np.array([float(share @ share) for share in shares])
    factors = np.array([float(share @ off) for share, off in zip(shares, left, strict=True)]) / np.maximum(squares, 1e-9)
    telling = np.flatnonzero(squares >= _TELLS)
    readings = sum(len(left[run]) for run in telling)
    if len(telling) < _LEAST or readings <= 2 * len(telling):
        return list(found)
    within = sum(float(np.sum((left[run] - factors[run] * shares[run]) ** 2)) for run in telling)
    noise_w2 = within / (readings - len(telling))
    between_w2 = max(float(np.mean(factors[telling] ** 2 - noise_w2 / squares[telling])), 0.0)
    return [
        _turned(one, share, square, between_w2 / noise_w2)
        for one, share, square in zip(found, shares, squares.tolist(), strict=True)
    ]


def _turned(found: Rows, share: FloatArray, square: float, ratio: float) -> Rows:
    rows, values = found
    if square <= 0.0:
        return found
    less = (1.0 - 1.0 / np.sqrt(1.0 + ratio * square)) / square
    return rows - less * np.outer(share, share @ rows), values - less * share * float(share @ values)
