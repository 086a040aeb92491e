"""Errors of readings besides their noise: what runs have in common, and what the fitted power cannot explain.

Readings of one run err together, as a run is a little slower than others, or its GPU a little warmer:

    run 1   ▇▇▇▇▇▇▇▇      reading = power · (1 + factor of the run) + noise
    run 2   ▆▆▆▆▆▆▆▆

The many readings of a long run therefore say much about the shape of its power, but little about its mean. How much the
factors scatter follows from a first fit; readings are then transformed so that their remaining errors are independent
(generalised least squares with one random effect; Harville, J. Am. Stat. Assoc. 72, 1977).

What the fit leaves unexplained beyond noise is misfit, and belongs into the error bands:

    residuals  ·:·  ·.·  ·:·  ·˙·      by position in a unit: means that differ by more than noise explains are misfit
    runs       ▁ ▃ ▂ ▁ ▂ ▃ ▂ ▁         golden runs differ a little, however many readings each has
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import Channel
from wastenot.profiles.design import DesignRows, informative, window_end_s
from wastenot.profiles.runs import TimedRun

_MIN_RUNS = 3  # of a kind, with enough readings to estimate their factors
_MIN_SQUARES = 1.0  # sum of squared fractions of full power over a run's readings, from which its factor is estimated
_MAX_BINS = 12  # of positions in a unit, in each of which residuals are averaged
_MIN_IN_BIN = 6  # residuals


def without_run_factors(readings: Sequence[DesignRows], expected_w: Sequence[FloatArray], idle_w: float) -> list[DesignRows]:
    """Transform readings of runs of one kind so that their errors are independent.

    Args:
        readings: design rows and values of each run's readings.
        expected_w: what a first fit expects of them.
        idle_w: power at rest, which the factors do not apply to.
    """
    full_w = max(max(float(np.max(power, initial=idle_w)) for power in expected_w) - idle_w, 1e-9)
    fractions = [(power - idle_w) / full_w for power in expected_w]
    residuals = [values - power for (_, values), power in zip(readings, expected_w, strict=True)]
    squares = np.array([float(fraction @ fraction) for fraction in fractions])
    factors = np.array([float(fraction @ off) for fraction, off in zip(fractions, residuals, strict=True)])
    factors /= np.maximum(squares, 1e-9)
    used = np.flatnonzero(squares >= _MIN_SQUARES)
    number = sum(len(residuals[run]) for run in used)
    if len(used) < _MIN_RUNS or number <= 2 * len(used):
        return list(readings)
    within = sum(float(np.sum((residuals[run] - factors[run] * fractions[run]) ** 2)) for run in used)
    noise_w2 = within / (number - len(used))
    between_w2 = max(float(np.mean(factors[used] ** 2 - noise_w2 / squares[used])), 0.0)
    return [
        _decorrelated(one, fraction, square, between_w2 / noise_w2)
        for one, fraction, square in zip(readings, fractions, squares.tolist(), strict=True)
    ]


def _decorrelated(readings: DesignRows, fraction: FloatArray, square: float, ratio: float) -> DesignRows:
    rows, values = readings
    if square <= 0.0:
        return readings
    weight = (1.0 - 1.0 / np.sqrt(1.0 + ratio * square)) / square
    return rows - weight * np.outer(fraction, fraction @ rows), values - weight * fraction * float(fraction @ values)


@dataclass(frozen=True, slots=True, eq=False)
class Misfit:
    """Residuals of readings whose windows lie within one unit, and the error that runs have in common.

    Attributes:
        common_w: standard error that is common to a whole profile, as runs scatter.
        unit: index of the unit that each window lies in; shape (residuals,).
        fraction: of the unit, at the middle of the window; shape (residuals,).
        residual_w: reading minus expected power; shape (residuals,).
    """

    common_w: float
    unit: IndexArray
    fraction: FloatArray
    residual_w: FloatArray

    def inside(self, first: int, until: int) -> float:
        """Root mean square error of the power inside units, beyond what noise explains; 0 where there is none."""
        ours = (self.unit >= first) & (self.unit < until)
        residual_w, fraction = self.residual_w[ours], self.fraction[ours]
        bins = min(len(residual_w) // _MIN_IN_BIN, _MAX_BINS)
        if bins < 2:
            return 0.0
        index = np.minimum((bins * fraction).astype(np.intp), bins - 1)
        number = np.bincount(index, minlength=bins)
        mean_w = np.bincount(index, residual_w, bins) / np.maximum(number, 1)
        noise_w2 = float(np.sum((residual_w - mean_w[index]) ** 2)) / (len(residual_w) - bins)
        return float(np.sqrt(max(float(number @ mean_w**2) - bins * noise_w2, 0.0) / len(residual_w)))


NO_MISFIT = Misfit(0.0, np.empty(0, dtype=np.intp), np.empty(0), np.empty(0))
"""Of a power that explains everything."""


def misfit_of(
    runs: Sequence[TimedRun], residuals_w: Sequence[FloatArray], channel: Channel, own: int, per_unit: int
) -> Misfit:
    """The misfit of some runs.

    Args:
        runs: that power was fitted to.
        residuals_w: of the informative readings of each run.
        channel: of the readings.
        own: index of the profiled kernel.
        per_unit: executions in a unit of it.
    """
    units, fractions, inside, busy = [], [], [], []
    for run, residual_w in zip(runs, residuals_w, strict=True):
        end_s = window_end_s(run, channel)[informative(run, channel)]
        ours = np.flatnonzero(run.kernel == own)
        bounds_s = np.append(run.begin_s[ours[::per_unit]], run.end_s[ours[-1]])
        unit = np.searchsorted(bounds_s, end_s - channel.reach_s, side="right") - 1
        within = (unit >= 0) & (unit < len(bounds_s) - 1)
        unit = np.clip(unit, 0, len(bounds_s) - 2)
        within &= end_s <= bounds_s[unit + 1]
        fraction = (end_s - 0.5 * channel.reach_s - bounds_s[unit]) / np.diff(bounds_s)[unit]
        units.append(unit[within])
        fractions.append(fraction[within])
        inside.append(residual_w[within])
        busy.append(residual_w[(end_s > 0.0) & (end_s - channel.span_s < run.end_s[-1])])
    return Misfit(_common_w(busy), np.concatenate(units), np.concatenate(fractions), np.concatenate(inside))


def _common_w(residuals_w: Sequence[FloatArray]) -> float:
    """Standard error of the mean over runs, from how much their means scatter beyond the noise within them."""
    several = [one for one in residuals_w if len(one) > 1]
    if len(several) < 2:
        return 0.0
    number = np.array([len(one) for one in several])
    mean_w = np.array([one.mean() for one in several])
    noise_w2 = sum(float(np.sum((one - one.mean()) ** 2)) for one in several) / float(np.sum(number - 1))
    between_w2 = float(np.mean((mean_w - mean_w.mean()) ** 2 - noise_w2 / number))
    return float(np.sqrt(max(between_w2, 0.0) / len(several)))
