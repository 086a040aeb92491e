"""Energy of any window of time, and how well it is known, from a counter that moves in steps ten times a second.

The counter is known where it steps; a window begins and ends between its steps:

    energy                                             ┌──── E4
                                          ┌────────────┘ E3
                             ┌────────────┘ E2
                ┌────────────┘ E1
    ────────────┘ E0     begin             :        end
                :            ├──────────────────────┤
                t0       t1  b     t2          t3   e     t4       steps, each known to a width w
                             ├─────┤───────────┤────┤
                              part     whole    part               energy = part + (E3 − E2) + part

A part is what the step that an edge cuts used on the window's side of the edge. With P the step's length, p = ΔE/P its
mean power, l and r those of the steps before and after it, and x the place of the edge in it (0 to 1), power within the step
is taken

    as constant                  where l and r are alike (their difference is no more than the steps' own scatter);
    as one change from l to r    where they differ: at the place y with l·y + r·(1 − y) = p, which the step's own energy
                                 tells. A load that begins or ends where the window does is so given to it whole.

The standard error is the root of the sum of

    timing      p_x²·((1 − x)²·w0² + x²·w1²)/12     of each edge: its step's two moments, uniform over their widths
    shape       P²·x·(1 − x)·s²                     of each edge: power may have varied within the step as it does around it;
                                                    s² = scatter of the steps near it, or of the gauge's readings against
                                                    their step where that says more, and the part of p outside l … r
    model       (¼·|change − constant|)²            of each edge: the change may not have been a sudden one
    sensor      n·σ²·P²                             of n steps that each err by σ: their least scatter, at most 1 % or 3 W

The counter's own gain (a few per cent on known cards) is not in it: that is the same for all windows of a card.

A window that holds no whole step lies in one step or two, and these are taken as one. If they stand out from the steps
around, how much of what stands out is the window's is unknown: between its share of the time and all. The middle is given,
and half of the difference is its standard error, with what the sensor's noise, at its bound, could hide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wastenot.metering.split_step import CutStep

Array = NDArray[np.float64]

SHORT = "window holds no whole step of the energy counter"
BEFORE = "window begins before the first step seen of the energy counter"
AFTER = "window ends after the last step seen of the energy counter"

_NEAR = 3  # steps on either side of an edge whose scatter tells how power varies there
_NOISE_SHARE, _NOISE_W = 0.01, 3.0  # scatter beyond this is the load's, not the sensor's
_QUARTILE = 0.4506  # lower quartile of |a − b| of two normal numbers, in standard deviations of one
_TRIMMED = 1.2  # makes up for part of what the smaller half of differences is smaller by
_EFFICIENCY = 0.37  # of a lower quartile against a standard deviation
_HIDES = 0.5  # share of a step's noise that may hide what a shorter window used
_FEW = 20  # steps that tell of the sensor's noise


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a counter, arrays of equal length.

    Attributes:
        moment_s: of each step, rising.
        width_s: of the time in which it happened, of which the moment is the middle.
        energy_j: the counter after it.
    """

    moment_s: Array
    width_s: Array
    energy_j: Array


@dataclass(frozen=True, slots=True)
class WindowEnergy:
    """Energy of a window, its standard error, and what a reader should know."""

    energy_j: float
    error_j: float
    flags: tuple[str, ...]


def window_energy(
    steps: Steps,
    begin_s: float,
    end_s: float,
    *,
    gauge_scatter_w: float = 0.0,
    left_w: float | None = None,
    right_w: float | None = None,
) -> WindowEnergy | None:
    """Energy of a window.

    Args:
        steps: of the counter, from before the window's begin to after its end, with some more on either side if possible.
        begin_s: of the window, on the clock of the steps.
        end_s: of it.
        gauge_scatter_w: by how much readings of a power gauge that averages less than a step scatter around the mean power
            of the step they are in, as standard deviation of steps; 0 where it is not known.
        left_w: power before the first of the steps, for a window that begins in that.
        right_w: power after the last of them.

    Returns:
        The energy; ``None`` where fewer than two steps are known.
    """
    if len(steps.moment_s) < 2:
        return None
    log = _Log.of(steps, begin_s, end_s, gauge_scatter_w, (left_w, right_w))
    flags: list[str] = []
    if log.last - log.first <= 1:
        flags.append(SHORT)
        step = log.cut(log.first, log.last)
        x, z = step.place(begin_s), step.place(end_s)
        energy, variance = step.between_j(x, z)
        variance += (_noise_bound(step.power_w) * step.length_s * max(z - x, _HIDES)) ** 2
    else:
        energy = float(steps.energy_j[log.last] - steps.energy_j[log.first])
        variance = log.noise_w**2 * float(np.sum(log.lengths_s[log.first + 1 : log.last] ** 2))
        for sign, index, moment in ((-1.0, log.first, begin_s), (1.0, log.last, end_s)):
            step = log.cut(index, index)
            x = step.place(moment)
            energy += sign * step.used_j(x)
            # The noise of neighbours enters where they tell at what place the load changed.
            part = x if sign > 0.0 else 1.0 - x
            noise = part**2 + (0.0 if step.change_at is None else 1.0)
            variance += step.variance_j2(x) + noise * (log.noise_w * step.length_s) ** 2
    beyond, beyond_variance = _beyond(steps.moment_s, log.powers_w, begin_s, end_s, flags)
    return WindowEnergy(max(energy + beyond, 0.0), math.sqrt(variance + beyond_variance), tuple(flags))


@dataclass(frozen=True, slots=True)
class _Log:
    """Steps with what they tell of each other; the window begins in step ``first`` and ends in step ``last``."""

    steps: Steps
    lengths_s: Array
    powers_w: Array
    first: int
    last: int
    gauge_w: float
    neighbours_w: tuple[float | None, float | None]
    timing_w: float
    noise_w: float

    @classmethod
    def of(
        cls, steps: Steps, begin_s: float, end_s: float, gauge_w: float, neighbours_w: tuple[float | None, float | None]
    ) -> _Log:
        moments = steps.moment_s
        lengths = np.diff(moments)
        powers = np.diff(steps.energy_j) / lengths
        highest = len(powers) - 1
        first = min(max(int(np.searchsorted(moments, begin_s, side="right")) - 1, 0), highest)
        last = min(max(int(np.searchsorted(moments, end_s, side="left")) - 1, first), highest)
        # A step whose moments are off has its power off: that is scatter which is neither the load's nor the sensor's.
        off = float(np.median(steps.width_s)) / math.sqrt(6.0) / float(np.median(lengths))
        timing_w = off * float(np.median(powers[first : last + 1]))
        noise_w = _sensor_noise(powers, first, last, timing_w)
        return cls(steps, lengths, powers, first, last, gauge_w, neighbours_w, timing_w, noise_w)

    def cut(self, first: int, last: int) -> CutStep:
        """Steps from one to another as one that is cut."""
        moments, energies, widths = self.steps.moment_s, self.steps.energy_j, self.steps.width_s
        begin, length = float(moments[first]), float(moments[last + 1] - moments[first])
        power = float(energies[last + 1] - energies[first]) / length
        left = float(self.powers_w[first - 1]) if first > 0 else self.neighbours_w[0]
        right = float(self.powers_w[last + 1]) if last + 1 < len(self.powers_w) else self.neighbours_w[1]
        scatter = _scatter(self.powers_w, first, last)
        of_load = math.sqrt(max(scatter**2 - self.noise_w**2 - self.timing_w**2, 0.0))
        return CutStep(
            begin,
            length,
            power,
            power if left is None else left,
            power if right is None else right,
            max(scatter, self.noise_w, self.timing_w),
            max(of_load, self.gauge_w),
            (float(widths[first]), float(widths[last + 1])),
        )


def _scatter(powers: Array, first: int, last: int) -> float:
    """Standard deviation of steps near one, from differences of those that follow each other on the same side of it."""
    before = np.diff(powers[max(first - _NEAR, 0) : first])
    after = np.diff(powers[last + 1 : last + 1 + _NEAR])
    apart = np.sort(np.abs(np.concatenate([before, after])))
    if len(apart) == 0:
        return 0.0
    # Half of a squared difference is the variance. The greater half of them may be changes of the load.
    kept = _TRIMMED * apart[: (len(apart) + 1) // 2] if len(apart) > 2 else apart
    return math.sqrt(float(np.mean(kept**2)) / 2.0)


def _sensor_noise(powers: Array, first: int, last: int, timing_w: float) -> float:
    """By how much each step errs: the least scatter that is seen, within the bounds of what is the sensor's."""
    wide = max(0, _FEW - (last - first)) // 2 + 1
    near = powers[max(first - wide, 0) : last + 1 + wide]
    if len(near) < 3:
        return 0.0
    least = float(np.quantile(np.abs(np.diff(near)), 0.25)) / _QUARTILE
    # Its variance may be wrong by this share; half of that is never taken to be nothing.
    unsure = math.sqrt(2.0 / (_EFFICIENCY * (len(near) - 1)))
    own = math.sqrt(max(least**2 - timing_w**2, min(0.5 * unsure, 1.0) * least**2))
    return min(own, _noise_bound(float(np.mean(near))))


def _noise_bound(power_w: float) -> float:
    return max(_NOISE_SHARE * power_w, _NOISE_W)


def _beyond(moments: Array, powers: Array, begin_s: float, end_s: float, flags: list[str]) -> tuple[float, float]:
    """Energy before the first step and after the last, as if power had been theirs, and its variance."""
    energy = variance = 0.0
    for gap, power, flag in (
        (float(moments[0]) - begin_s, float(powers[0]), BEFORE),
        (end_s - float(moments[-1]), float(powers[-1]), AFTER),
    ):
        if gap > 0.0:
            # Power there may have been anything from nothing to twice that: uniform.
            energy += power * gap
            variance += (power * gap) ** 2 / 3.0
            flags.append(flag)
    return energy, variance
