"""Shapes of time and power over clocks that physics suggests, from which surfaces are built.

A kernel's time is a smooth maximum of a core time, proportional to 1 / core clock, and a memory time, proportional to
1 / memory clock (roofline). A power limit may hold the core clock below what was requested. A table holds every combination
of the ratio of the two times, the smoothness of the maximum, and the clock at which the limit holds; each kernel gets the
mean of the combinations that its measurements allow, and the directions in which these differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray

_LOG_RATIOS = np.linspace(-2.0, 2.0, 61)  # of core to memory time at the highest clocks
_EXPONENTS = (2.0, 3.0, 4.0, 6.0, 9.0, 14.0)
_BETWEEN = 6  # clocks per core step at which a power limit may hold
_KNEES = (0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.92)  # core clocks, over the highest, above which voltage may rise
_DIRECTIONS = 4
_WIDENED = 2.0  # the directions' prior is this times what the same measurements allow, since they are used twice
_UNIFORM = 1.0 / math.sqrt(12.0)  # standard deviation of a uniform distribution of width 1
_UNLIKELY = 1e-4  # likelihood, over the best combination's, below which a combination is left out
_BLOCK = (16, 2, 2)  # limits, ratios and exponents of a block of combinations: the fewest are then looked at
_ROUNDING = 1e-12  # of scores


@dataclass(frozen=True, slots=True)
class TimeShape:
    """The log time over clocks that one kernel's measurements allow.

    Attributes:
        mean: centred log time, averaged over the combinations allowed; shape (settings,).
        directions: in which the combinations differ, the widest first; shape (directions, settings).
        limit: logarithm of the clock that a limit holds, averaged over the combinations in the same way.
        ratio: logarithm of core over memory time, averaged in the same way.
        exponent: of the smooth maximum, averaged in the same way.
    """

    mean: FloatArray
    directions: FloatArray
    limit: float
    ratio: float
    exponent: float


class ShapeTable:
    """Log times, in every combination, of kernels that were measured at the same clocks.

    The nearer a combination's times t are to a kernel's w, both centred, the higher is the score w · t − |t|²/2, which is
    half of |w|² − |w − t|². Few combinations are near w, so they are looked at in blocks of neighbours. Where all of a block
    are within ρ of its centre m, none is nearer to w than |w − m| − ρ, and most blocks can be left out:

              w ──────────── |w − m| ───────────── m
              └── at least |w − m| − ρ ──┤ t ── ρ ─┘

    Args:
        core: logarithm of the core clock over the highest of the sweep, shape (settings,).
        memory: the same of the memory clock.
        held: whether a limit may hold the core clock below ``core``; otherwise ``core`` is what was in effect.
    """

    def __init__(self, core: FloatArray, memory: FloatArray, held: bool) -> None:
        levels = np.unique(core)
        steps = np.arange((len(levels) - 1) * _BETWEEN + 1) / _BETWEEN
        upper = np.interp(steps, np.arange(len(levels)), levels) if held else levels[-1:]
        limits = upper[upper >= np.median(levels)]
        grid = np.meshgrid(limits, _LOG_RATIOS, _EXPONENTS, indexing="ij")
        self._limit, self._ratio, self._exponent = (axis.ravel() for axis in grid)
        # The smooth maximum, log(exp(α core time) + exp(α memory time)) / α, from exponentials of clocks and of ratios.
        exponent = np.array(_EXPONENTS)[:, None]
        ratios = np.exp(exponent * _LOG_RATIOS).T[None, :, :, None]
        core_rates = np.exp(-exponent * np.minimum(core, limits[:, None])[:, None])[:, None]
        times = ratios * core_rates
        times += np.exp(-exponent * memory)
        np.log(times, out=times)
        times /= exponent
        times -= times.mean(axis=-1, keepdims=True)
        self._times: FloatArray = times.reshape(-1, len(core))
        self._half_squares: FloatArray = 0.5 * np.einsum("cs,cs->c", self._times, self._times)
        self._shape = grid[0].shape
        self._blocks = _blocks_of(self._shape)
        self._centres = np.array([self._times[block].mean(axis=0) for block in self._blocks])
        self._radii = np.array([
            np.sqrt(((self._times[block] - centre) ** 2).sum(axis=1).max())
            for block, centre in zip(self._blocks, self._centres, strict=True)
        ])  # fmt: skip

    def _scores(self, wanted: FloatArray, block: IndexArray) -> FloatArray:
        """The scores of the combinations of a block, shape (kernels, combinations)."""
        return np.asarray(wanted @ self._times[block].T - self._half_squares[block])

    def _likely(self, wanted: FloatArray, below: float) -> tuple[IndexArray, IndexArray, FloatArray]:
        """The combinations whose score is not so far below the best of their kernel.

        Args:
            wanted: centred log times, shape (kernels, settings).
            below: how far a score may be.

        Returns:
            Kernel, combination and score of each, by kernel, then by combination.
        """
        square = (wanted**2).sum(axis=1)[:, None]
        apart = square - 2.0 * (wanted @ self._centres.T) + (self._centres**2).sum(axis=1)
        apart = np.sqrt(np.maximum(apart, 0.0))
        nearest = apart.argmin(axis=1)
        reached = np.empty(len(wanted))
        for block in np.unique(nearest).tolist():
            members = np.flatnonzero(nearest == block)
            reached[members] = self._scores(wanted[members], self._blocks[block]).max(axis=1)
        least = reached - below - _ROUNDING * square[:, 0]
        possible = 0.5 * (square - np.maximum(apart - self._radii, 0.0) ** 2) >= least[:, None]
        parts = []
        for block in np.flatnonzero(possible.any(axis=0)).tolist():
            members = np.flatnonzero(possible[:, block])
            scores = self._scores(wanted[members], self._blocks[block])
            member, taken = np.nonzero(scores >= least[members, None])
            parts.append((members[member], self._blocks[block][taken], scores[member, taken]))
        kernel, combination, score = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((combination, kernel))
        kernel, combination, score = kernel[order], combination[order], score[order]
        best = np.maximum.reduceat(score, np.searchsorted(kernel, np.arange(len(wanted))))
        likely = score >= best[kernel] - below
        return kernel[likely], combination[likely], score[likely]

    def least_misfits(self, log_time: FloatArray) -> FloatArray:
        """Sums of squares that the best combination leaves of kernels' log times.

        Args:
            log_time: shape (kernels, settings).

        Returns:
            Shape (kernels,).
        """
        wanted = log_time - log_time.mean(axis=1, keepdims=True)
        kernel, _, score = self._likely(wanted, 0.0)
        best = score[np.searchsorted(kernel, np.arange(len(wanted)))]
        return np.asarray(np.maximum((wanted**2).sum(axis=1) - 2.0 * best, 0.0))

    def time_shapes(self, log_time: FloatArray, noise: float) -> list[TimeShape]:
        """What each kernel's measurements allow.

        Args:
            log_time: shape (kernels, settings).
            noise: variance of a log time.
        """
        wanted = log_time - log_time.mean(axis=1, keepdims=True)
        kernel, taken, score = self._likely(wanted, -noise * math.log(_UNLIKELY))
        begin = np.searchsorted(kernel, np.arange(len(wanted) + 1))
        weight = np.exp((score - np.maximum.reduceat(score, begin[:-1])[kernel]) / noise)
        likeliest = [first + int(weight[first:end].argmax()) for first, end in pairwise(begin.tolist())]
        within = self._within_step(taken[likeliest])
        parts = zip(pairwise(begin.tolist()), within, strict=True)
        return [self._time_shape(taken[first:end], weight[first:end], step) for (first, end), step in parts]

    def _time_shape(self, taken: IndexArray, weight: FloatArray, within: FloatArray) -> TimeShape:
        weight = weight / weight.sum()
        times = self._times[taken]
        mean = weight @ times
        directions = np.zeros((_DIRECTIONS, len(mean)))
        apart = np.concatenate([np.sqrt(weight)[:, None] * (times - mean), within])
        if len(apart) <= len(mean):  # the same as by singular values, and quicker
            _, across = np.linalg.eigh(apart @ apart.T)
            scaled = across.T[::-1] @ apart
        else:
            _, size, along = np.linalg.svd(apart, full_matrices=False)
            scaled = size[:, None] * along
        width = min(_DIRECTIONS, len(scaled))
        directions[:width] = _WIDENED * scaled[:width]
        limit, ratio, exponent = (float(weight @ axis[taken]) for axis in (self._limit, self._ratio, self._exponent))
        return TimeShape(mean, directions, limit, ratio, exponent)

    def _within_step(self, combinations: IndexArray) -> FloatArray:
        """By how much the truth may differ from the nearest combination: along each axis it is anywhere within a step.

        Shape (combinations, axes, settings).
        """
        places, steps = (
            np.stack(np.unravel_index(combinations, self._shape), axis=-1),
            np.eye(len(self._shape), dtype=np.intp),
        )
        lower, upper = (np.clip(places[:, None] + sign * steps, 0, np.array(self._shape) - 1) for sign in (-1, 1))
        below, above = (
            self._times[np.ravel_multi_index(tuple(np.moveaxis(each, -1, 0)), self._shape)] for each in (lower, upper)
        )
        return np.asarray((above - below) * (_UNIFORM / np.maximum((upper - lower).sum(axis=-1), 1))[..., None])


def _blocks_of(shape: tuple[int, ...]) -> list[IndexArray]:
    """Indices of the combinations of each block of a grid; those of a single limit are few enough to be one block."""
    grid = np.arange(math.prod(shape)).reshape(shape)
    if shape[0] == 1:
        return [grid.ravel()]
    cuts = [range(0, length, step) for length, step in zip(shape, _BLOCK, strict=True)]
    return [
        grid[tuple(slice(first, first + step) for first, step in zip(corner, _BLOCK, strict=True))].ravel()
        for corner in product(*cuts)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """What the surfaces of kernels measured at the same settings are made of.

    Attributes:
        core: logarithm of the core clock, held by a limit where there is one; shape (kernels, settings).
        memory: logarithm of the rate at which memory delivers, shape (kernels, settings).
        mean: see :class:`TimeShape`; shape (kernels, settings).
        directions: shape (kernels, directions, settings).
        ratio: shape (kernels, 1).
        exponent: shape (kernels, 1).
        automatic: 1 where part of the setting is auto, else 0, since auto differs from the clocks that it holds; shape
            (settings,).
        others: further logarithms that time and power may depend on, shape (settings,) each.
        states: values of ``memory`` whose power is fitted separately; shape (states,).
        held: whether the core clock in effect is a guess.
        few: whether there are too few settings for more than the main shapes.
    """

    core: FloatArray
    memory: FloatArray
    mean: FloatArray
    directions: FloatArray
    ratio: FloatArray
    exponent: FloatArray
    automatic: FloatArray
    others: Sequence[FloatArray]
    states: FloatArray
    held: bool
    few: bool

    def of_time(self, kernels: IndexArray) -> FloatArray:
        """Shapes of the log times of some kernels, shape (kernels, shapes, settings)."""
        mean = self.mean[kernels]
        planes = [np.broadcast_to(other, mean.shape) for other in self.others]
        if not self.few:
            planes = [self.core[kernels], self.memory[kernels], *planes]
        centred = (plane - plane.mean(axis=1, keepdims=True) for plane in planes)
        shared = (np.broadcast_to(part, mean.shape) for part in (np.ones(1), self.automatic))
        return np.concatenate([np.stack([*shared, mean, *centred], axis=1), self.directions[kernels]], axis=1)

    def of_power(self, kernels: IndexArray) -> FloatArray:
        """Shapes of the powers of some kernels, shape (kernels, shapes, settings)."""
        clock, memory, mean = self.core[kernels], self.memory[kernels], self.mean[kernels]
        rate, throughput = np.exp(clock), np.exp(-mean)
        switching = [rate, rate**2, *(np.maximum(rate - knee, 0.0) for knee in _KNEES)]
        # What is drawn all the time, then what is drawn for the work done.
        states = ((memory == state).astype(np.float64) for state in self.states)
        steady = [*(switching[:2] if self.few else switching), *states]
        if self.few:
            work = []
        elif self.held:  # fewer shapes, that depend less on the clock
            odds = self.exponent[kernels] * (self.ratio[kernels] - clock + memory)
            core_fraction = 1.0 / (1.0 + np.exp(-np.clip(odds, -60.0, 60.0)))
            work = [core_fraction * part for part in switching[:2] + switching[5:7]]
        else:
            work = [throughput * part for part in steady]
        shared = (np.broadcast_to(part, mean.shape) for part in (np.ones(1), self.automatic))
        others = (np.broadcast_to(other, mean.shape) for other in self.others)
        return np.stack([*shared, *steady, throughput, *work, *others], axis=1)
