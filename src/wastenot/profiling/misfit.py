"""What a fitted power leaves unexplained of its readings beyond their noise: errors that its own equations know nothing of.

residuals  ·:·  ·.·  ·:·  ·˙·      in a unit, by place: means that differ by more than noise lets them are misfit
runs       ▁ ▃ ▂ ▁ ▂ ▃ ▂ ▁         golden runs differ a little: their scatter is no less for more readings of each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import Channel
from wastenot.profiling.collect import TimedRun
from wastenot.profiling.design import seen_until, told_of

_PLACES = 12  # of a unit, in which residuals are looked at together, at most
_IN_A_PLACE = 6  # residuals, at least


@dataclass(frozen=True, slots=True, eq=False)
class Misfit:
    """Residuals of readings whose windows lie within units altogether, and what runs have in common.

    Attributes:
        common_w: standard error that all of a profile has in common, since runs scatter.
        unit: that each lies in, from 0; shape (residuals,).
        share: of it, at the window's middle; shape (residuals,).
        residual_w: reading less what is explained; shape (residuals,).
    """

    common_w: float
    unit: IndexArray
    share: FloatArray
    residual_w: FloatArray

    def inside(self, first: int, until: int) -> float:
        """Root mean square by which power inside units is off, beyond what noise makes of it; 0 where none is seen."""
        ours = (self.unit >= first) & (self.unit < until)
        residual_w, share = self.residual_w[ours], self.share[ours]
        places = min(len(residual_w) // _IN_A_PLACE, _PLACES)
        if places < 2:
            return 0.0
        place = np.minimum((places * share).astype(np.intp), places - 1)
        number = np.bincount(place, minlength=places)
        mean_w = np.bincount(place, residual_w, places) / np.maximum(number, 1)
        noise_w2 = float(np.sum((residual_w - mean_w[place]) ** 2)) / (len(residual_w) - places)
        return float(np.sqrt(max(float(number @ mean_w**2) - places * noise_w2, 0.0) / len(residual_w)))


NO_MISFIT = Misfit(0.0, np.empty(0, dtype=np.intp), np.empty(0), np.empty(0))
"""Of a power that explains everything."""


def misfit_of(runs: Sequence[TimedRun], residuals_w: Sequence[FloatArray], channel: Channel, own: int, group: int) -> Misfit:
    """The misfit of some runs.

    Args:
        runs: that power was fitted to.
        residuals_w: of each, of its readings that say something of it.
        channel: of the readings.
        own: the profiled kernel.
        group: executions in a unit.
    """
    units, shares, inside, scatter = [], [], [], []
    for run, residual_w in zip(runs, residuals_w, strict=True):
        end = seen_until(run, channel)[told_of(run, channel)]
        ours = np.flatnonzero(run.kernel == own)
        bounds = np.append(run.begin_s[ours[::group]], run.end_s[ours[-1]])
        unit = np.searchsorted(bounds, end - channel.reach_s, side="right") - 1
        within = (unit >= 0) & (unit < len(bounds) - 1)
        unit = np.clip(unit, 0, len(bounds) - 2)
        within &= end <= bounds[unit + 1]
        share = (end - 0.5 * channel.reach_s - bounds[unit]) / np.diff(bounds)[unit]
        units.append(unit[within])
        shares.append(share[within])
        inside.append(residual_w[within])
        scatter.append(residual_w[(end > 0.0) & (end - channel.span_s < run.end_s[-1])])
    return Misfit(_common_w(scatter), np.concatenate(units), np.concatenate(shares), np.concatenate(inside))


def _common_w(residuals_w: Sequence[FloatArray]) -> float:
    """Standard error of the mean of runs, from what their means scatter by beyond the noise within them."""
    several = [one for one in residuals_w if len(one) > 1]
    if len(several) < 2:
        return 0.0
    number = np.array([len(one) for one in several])
    mean_w = np.array([one.mean() for one in several])
    noise_w2 = sum(float(np.sum((one - one.mean()) ** 2)) for one in several) / float(np.sum(number - 1))
    between_w2 = float(np.mean((mean_w - mean_w.mean()) ** 2 - noise_w2 / number))
    return float(np.sqrt(max(between_w2, 0.0) / len(several)))
