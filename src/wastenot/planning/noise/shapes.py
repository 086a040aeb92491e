"""Shapes of time and power over clocks that physics suggests, for surfaces to be made of.

A kernel's time is a smooth maximum of a core time, which goes with 1 / core clock, and a memory time, which goes with
1 / memory clock (roofline). A power limit may hold the core clock below what was asked for. A table has all combinations of
the ratio of the two times, of how smooth the maximum is, and of where the clock is held; each kernel is given the mean of
those that its measurements allow, and the directions in which they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from wastenot.arrays import FloatArray

_LOG_RATIOS = np.linspace(-2.0, 2.0, 61)  # of core to memory time at the highest clocks
_EXPONENTS = (2.0, 3.0, 4.0, 6.0, 9.0, 14.0)
_BETWEEN = 6  # places between two core clocks at which a power limit may hold the clock
_KNEES = (0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.92)  # core clocks over the highest between which voltage may bend
_DIRECTIONS = 4
_WIDENED = 2.0  # directions are as wide a prior as this times what the same measurements allow: they count once more


class ShapeTable:
    """The shapes that kernels measured at the same clocks may have.

    Args:
        core: logarithm of the core clock over the highest of the sweep, shape (settings,).
        memory: likewise memory clock.
        automatic: 1 where a part of the setting is auto, else 0; auto is not wholly like the clocks that it holds.
        held: whether a limit may hold the core clock below what is given; else it is that in effect.
    """

    def __init__(self, core: FloatArray, memory: FloatArray, automatic: FloatArray, held: bool) -> None:
        self.core, self.memory, self.automatic = core, memory, automatic
        levels = np.unique(self.core)
        self.held = held
        places = np.arange((len(levels) - 1) * _BETWEEN + 1) / _BETWEEN
        upper = np.interp(places, np.arange(len(levels)), levels) if held else levels[-1:]
        self.limits = upper[upper >= np.median(levels)]

    @cached_property
    def _candidates(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Limit, ratio and exponent of every combination, shape (combinations, 1) each."""
        grid = np.meshgrid(self.limits, _LOG_RATIOS, _EXPONENTS, indexing="ij")
        limit, ratio, exponent = (axis.reshape(-1, 1) for axis in grid)
        return limit, ratio, exponent

    @cached_property
    def _times(self) -> FloatArray:
        """Centred log times of every combination, shape (combinations, settings)."""
        limit, ratio, exponent = self._candidates
        found = np.logaddexp(exponent * (ratio - np.minimum(self.core, limit)), -exponent * self.memory) / exponent
        centred: FloatArray = found - found.mean(axis=1, keepdims=True)
        return centred

    @cached_property
    def _squares(self) -> FloatArray:
        squares: FloatArray = (self._times**2).sum(axis=1)
        return squares

    def misfits(self, log_time: FloatArray) -> FloatArray:
        """Sums of squares that each combination leaves of a kernel's log times, shape (combinations,)."""
        wanted = log_time - log_time.mean()
        left: FloatArray = np.maximum(self._squares - 2.0 * (self._times @ wanted) + wanted @ wanted, 0.0)
        return left

    def shapes(
        self, misfits: FloatArray, noise: float, states: FloatArray, others: Sequence[FloatArray]
    ) -> tuple[FloatArray, FloatArray]:
        """The shapes of one kernel's log time and log power, shape (settings, shapes) each.

        Args:
            misfits: see :meth:`misfits`.
            noise: variance of a log time.
            states: values of ``memory`` that have a power of their own, shape (states,).
            others: further logarithms that both may go with, shape (settings,) each.
        """
        likely = np.exp(-0.5 * (misfits - misfits.min()) / noise)
        taken = np.flatnonzero(likely > 1e-4)
        share_of = likely[taken] / likely[taken].sum()
        times = self._times[taken]
        mean = share_of @ times
        _, size, along = np.linalg.svd(np.sqrt(share_of)[:, None] * (times - mean), full_matrices=False)
        directions = np.zeros((_DIRECTIONS, len(mean)))
        width = min(_DIRECTIONS, len(size))
        directions[:width] = _WIDENED * size[:width, None] * along[:width]
        limit, ratio, exponent = (share_of @ axis[taken, 0] for axis in self._candidates)
        clock = np.minimum(self.core, limit)
        planes = [clock, self.memory, *others]
        rate, throughput = np.exp(clock), np.exp(-mean)
        switching = [rate, rate**2, *(np.maximum(rate - knee, 0.0) for knee in _KNEES)]
        steady = [
            *switching,
            *((self.memory == state).astype(np.float64) for state in states),
        ]  # what is drawn all the time; then by work done
        if self.held:  # the clock is a guess: fewer shapes, that depend less on it
            core_share = 1.0 / (1.0 + np.exp(-np.clip(exponent * (ratio - clock + self.memory), -60.0, 60.0)))
            work = [core_share * part for part in switching[:2] + switching[5:7]]
        else:
            work = [throughput * part for part in steady]
        power = [*steady, throughput, *work, *others]
        return (
            np.column_stack([np.ones(len(mean)), self.automatic, mean, *(_centred(p) for p in planes), *directions]),
            np.column_stack([np.ones(len(mean)), self.automatic, *power]),
        )


def _centred(shape: FloatArray) -> FloatArray:
    centred: FloatArray = shape - shape.mean()
    return centred
