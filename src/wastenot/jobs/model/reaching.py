"""The chance that a run reaches its target at all, by batch size.

Batch sizes that work lie side by side: at some of them and beyond, runs fail. Where these edges are is learned, and how
often runs fail between them.
"""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import FloatArray

_HAZARD = 0.12  # that an edge lies within the next octave
_DEFAULT_FAILS = 0.01  # a priori: users run defaults that work
_INSIDE = ((0.995, 0.75), (0.9, 0.15), (0.7, 0.1))  # chance of reaching the target between the edges, prior
_AT_EDGE, _BEYOND = 0.5, 0.02


class Reaching:
    """Learns where runs reach their target.

    Args:
        octaves: log2 of the batch sizes, ascending.
        default: index of the default among them.
        default_fails: how likely it is that it does not reach the target, a priori.
    """

    def __init__(self, octaves: FloatArray, default: int, *, default_fails: float = _DEFAULT_FAILS) -> None:
        count = octaves.size
        index = np.arange(count)
        chances, prior = [], []
        for low in range(count):
            for high in range(low, count):
                inside = (index >= low) & (index <= high)
                edge = (index == low - 1) | (index == high + 1)
                likely = 1.0 if low <= default <= high else default_fails
                likely *= _edge(octaves[default] - octaves[low::-1]) * _edge(octaves[high:] - octaves[default])
                for chance, often in _INSIDE:
                    chances.append(np.where(inside, chance, np.where(edge, _AT_EDGE, _BEYOND)))
                    prior.append(likely * often)
        self._chances = np.array(chances)
        self._reached, self._failed = np.log(self._chances), np.log1p(-self._chances)
        self._prior = np.log(np.array(prior) / np.sum(prior))
        self._evidence = self._prior.copy()

    def saw(self, place: int, *, reached: bool, weight: float = 1.0) -> None:
        """Take note of a run that reached its target, or of one that never would."""
        self._evidence += weight * (self._reached if reached else self._failed)[:, place]

    def saw_survive(self, place: int, survival: float) -> None:
        """Take note of a run that was ended before it reached its target.

        Args:
            place: index of its batch size.
            survival: chance that one which does reach its target would have needed more epochs.
        """
        self._evidence += np.log1p(-self._chances[:, place] * (1.0 - survival))

    def chance(self) -> FloatArray:
        """Of reaching the target; shape (batch sizes,)."""
        weights = np.exp(self._evidence - self._evidence.max())
        chance: FloatArray = (weights @ self._chances) / weights.sum()
        return chance

    def chance_after(self) -> FloatArray:
        """Of reaching the target once a run of another has: of the column's batch size after the row's; square."""
        weights = np.exp(self._evidence - self._evidence.max())
        both = (self._chances * weights[:, None]).T @ self._chances
        after: FloatArray = both / (weights @ self._chances)[:, None]
        return after


def _edge(distance: FloatArray) -> float:
    """Prior of an edge just behind the first of these distances from the default; of none at all where it is the last."""
    near = np.exp(-_HAZARD * max(float(distance[0]), 0.0))
    return float(near if distance.size == 1 else near - np.exp(-_HAZARD * max(float(distance[1]), 0.05)))
