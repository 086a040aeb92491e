"""Energy of any window of time, and how well it is known, from a counter that moves in steps ten times a second.

The counter is known at its steps; a window begins and ends between them:

    energy                                             ┌──── E4
                                          ┌────────────┘ E3
                             ┌────────────┘ E2
                ┌────────────┘ E1
    ────────────┘ E0     begin             :        end
                :            ├──────────────────────┤
                t0       t1  b     t2          t3   e     t4       moments of steps, each known to a width w
                             ├─────┤───────────┤────┤
                              part     whole    part               energy = part + (E3 − E2) + part

A part is the energy that the interval split by a window's edge used on the window's side. With P the interval's length,
p = ΔE/P its mean power, l and r those of the intervals before and after it, and x the position of the edge in it (0 to 1),
power within the interval is modelled

    as constant                  where l and r are alike (they differ by no more than the intervals' own scatter);
    as one change from l to r    where they differ: at the position y with l·y + r·(1 − y) = p, which the interval's own
                                 energy determines. A load that begins or ends with the window is then all in it.

The standard error is the root of the sum of

    timing      p_x²·((1 − x)²·w0² + x²·w1²)/12     for each edge: the interval's two moments, uniform over their widths
    shape       P²·x·(1 − x)·s²                     for each edge: power may have varied within the interval as it does near
                                                    it; s² = scatter of the intervals nearby, or of gauge readings about
                                                    their interval where that is larger, and the part of p outside l … r
    model       (0.1·|change − constant|)²          for each edge: the change may have been gradual
    sensor      n·σ²·P²                             n intervals that each err by σ: their least scatter, at most 1 % or 3 W

The counter's gain error (a few per cent on known cards) is not included: it is the same for all windows of a card.

A window that contains no whole interval lies in one or two, which are then treated as one. If their power stands out from
the intervals around, it is unknown how much of the excess is the window's: between its fraction of the time and all. The
middle is returned, and half of the difference is its standard error, plus what the sensor's noise, at its bound, could hide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray

SHORT = "window contains no complete step of the energy counter"
BEFORE = "window begins before the first observed step of the energy counter"
AFTER = "window ends after the last observed step of the energy counter"

_NEARBY = 3  # intervals on either side of an edge whose scatter shows how power varies there
_NOISE_FRACTION, _NOISE_W = 0.01, 3.0  # scatter beyond this is the load's, not the sensor's
_QUARTILE = 0.4506  # lower quartile of |a − b| of two normal numbers, in standard deviations of one
_TRIM_CORRECTION = 1.2  # partly undoes the bias of keeping the smaller half of the differences
_QUARTILE_EFFICIENCY = 0.37  # of a lower quartile relative to a standard deviation
_HIDDEN_FRACTION = 0.5  # of an interval's noise, that may hide what a shorter window used
_NOISE_INTERVALS = 20  # that the sensor's noise is estimated from
_CHANGE_SCATTERS = 4.0  # neighbours that differ by more than this many scatters show a change of the load
_CHANGE_DOUBT = 0.1  # fraction of the difference between a sudden change and none that is counted as error


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a counter, arrays of equal length.

    Attributes:
        moment_s: of each step, ascending.
        width_s: of the interval in which it happened, whose middle the moment is.
        energy_j: the counter after it.
    """

    moment_s: FloatArray
    width_s: FloatArray
    energy_j: FloatArray


@dataclass(frozen=True, slots=True)
class WindowEnergy:
    """Energy of a window, its standard error, and caveats for the reader."""

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
        steps: of the counter, from before the window's begin to after its end, with a few more on either side if possible.
        begin_s: of the window, on the clock of the steps.
        end_s: of the window.
        gauge_scatter_w: by how much readings of a power gauge that averages less than an interval scatter about the mean
            power of their interval, as standard deviation of intervals; 0 where unknown.
        left_w: power before the first of the steps, for a window that begins in the first interval.
        right_w: power after the last of them.

    Returns:
        The energy; ``None`` where fewer than two steps are known.
    """
    if len(steps.moment_s) < 2:
        return None
    log = _Intervals.of(steps, begin_s, end_s, gauge_scatter_w, (left_w, right_w))
    flags: list[str] = []
    if log.last - log.first <= 1:
        flags.append(SHORT)
        split = log.split(log.first, log.last)
        x, z = split.position(begin_s), split.position(end_s)
        energy, variance = split.between_j(x, z)
        variance += (_noise_bound(split.power_w) * split.length_s * max(z - x, _HIDDEN_FRACTION)) ** 2
    else:
        energy = float(steps.energy_j[log.last] - steps.energy_j[log.first])
        variance = log.noise_w**2 * float(np.sum(log.lengths_s[log.first + 1 : log.last] ** 2))
        for sign, index, moment in ((-1.0, log.first, begin_s), (1.0, log.last, end_s)):
            split = log.split(index, index)
            x = split.position(moment)
            energy += sign * split.used_j(x)
            # The neighbours' noise enters where they determine the position of a change of the load.
            part = x if sign > 0.0 else 1.0 - x
            noise = part**2 + (0.0 if split.change_at is None else 1.0)
            variance += split.variance_j2(x) + noise * (log.noise_w * split.length_s) ** 2
    outside, outside_variance = _outside(steps.moment_s, log.powers_w, begin_s, end_s, flags)
    return WindowEnergy(max(energy + outside, 0.0), math.sqrt(variance + outside_variance), tuple(flags))


@dataclass(frozen=True, slots=True)
class _SplitInterval:
    """An interval between two steps (or two intervals taken as one) that a window's edge splits, and the power around it.

    Attributes:
        power_w, left_w, right_w: mean power of the interval, of the one before and of the one after.
        scatter_w: of the intervals nearby, whatever the reason.
        variation_w: how much power varies within an interval, as standard deviation of intervals.
        widths_s: of its two moments.
    """

    begin_s: float
    length_s: float
    power_w: float
    left_w: float
    right_w: float
    scatter_w: float
    variation_w: float
    widths_s: tuple[float, float]

    def position(self, moment_s: float) -> float:
        """Of a moment in the interval; 0 to 1."""
        return min(max((moment_s - self.begin_s) / self.length_s, 0.0), 1.0)

    @property
    def change_at(self) -> float | None:
        """Position of the one change from left to right; ``None`` where none stands out."""
        difference = self.right_w - self.left_w
        if abs(difference) <= _CHANGE_SCATTERS * self.scatter_w:
            return None
        return min(max((self.right_w - self.power_w) / difference, 0.0), 1.0)

    @property
    def excess_w(self) -> float:
        """By how much more than the scatter its power is above both neighbours', or (negative) below both."""
        low, high = sorted((self.left_w, self.right_w))
        difference = self.power_w - min(max(self.power_w, low), high)
        return math.copysign(math.sqrt(max(difference**2 - self.scatter_w**2, 0.0)), difference)

    def used_j(self, x: float) -> float:
        """Energy used up to a position."""
        y = self.change_at
        if y is None:
            return self.power_w * x * self.length_s
        remainder = self.power_w - (self.left_w * y + self.right_w * (1.0 - y))
        return (self.left_w * min(x, y) + self.right_w * max(0.0, x - y) + remainder * x) * self.length_s

    def variance_j2(self, x: float) -> float:
        """Variance of :meth:`used_j`, without that of the sensor's noise."""
        y = self.change_at
        power_w = self.power_w if y is None else self.left_w if x < y else self.right_w
        first, second = self.widths_s
        timing = power_w**2 * (((1.0 - x) * first) ** 2 + (x * second) ** 2) / 12.0
        shape = self.length_s**2 * x * (1.0 - x) * (self.variation_w**2 + self.excess_w**2)
        model = (_CHANGE_DOUBT * (self.used_j(x) - self.power_w * x * self.length_s)) ** 2
        return timing + shape + model

    def between_j(self, x: float, z: float) -> tuple[float, float]:
        """Energy between two positions and its variance, without that of the sensor's noise."""
        fraction = z - x
        if fraction <= 0.0:
            return 0.0, 0.0
        whole = self.power_w * self.length_s
        expected = self.used_j(z) - self.used_j(x)
        first, second = self.widths_s
        widths2 = first**2 + second**2
        variance = (expected / self.length_s) ** 2 * widths2 / 12.0
        if self.change_at is not None:
            # The change's position is as uncertain as the interval's moments, and the window's edges may be near it.
            variance += (self.right_w - self.left_w) ** 2 * widths2 / 24.0
            variance += (_CHANGE_DOUBT * (expected - whole * fraction)) ** 2
        variance += self.length_s**2 * fraction * (1.0 - fraction) * self.variation_w**2
        # All of the excess may be the window's own, or no more of it than the window's fraction.
        with_excess = min(max(expected + self.excess_w * (1.0 - fraction) * self.length_s, 0.0), whole)
        half = 0.5 * (with_excess - expected)
        return expected + half, variance + half**2


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Intervals between steps and their noise; the window begins in interval ``first`` and ends in interval ``last``."""

    steps: Steps
    lengths_s: FloatArray
    powers_w: FloatArray
    first: int
    last: int
    gauge_w: float
    neighbours_w: tuple[float | None, float | None]
    timing_w: float
    noise_w: float

    @classmethod
    def of(
        cls, steps: Steps, begin_s: float, end_s: float, gauge_w: float, neighbours_w: tuple[float | None, float | None]
    ) -> _Intervals:
        moments = steps.moment_s
        lengths = np.diff(moments)
        powers = np.diff(steps.energy_j) / lengths
        highest = len(powers) - 1
        first = min(max(int(np.searchsorted(moments, begin_s, side="right")) - 1, 0), highest)
        last = min(max(int(np.searchsorted(moments, end_s, side="left")) - 1, first), highest)
        # Errors of the moments become errors of power: scatter that is neither the load's nor the sensor's.
        relative = float(np.median(steps.width_s)) / math.sqrt(6.0) / float(np.median(lengths))
        timing_w = relative * float(np.median(powers[first : last + 1]))
        noise_w = _sensor_noise(powers, first, last, timing_w)
        return cls(steps, lengths, powers, first, last, gauge_w, neighbours_w, timing_w, noise_w)

    def split(self, first: int, last: int) -> _SplitInterval:
        """Intervals from one to another, taken as one that an edge splits."""
        moments, energies, widths = self.steps.moment_s, self.steps.energy_j, self.steps.width_s
        begin, length = float(moments[first]), float(moments[last + 1] - moments[first])
        power = float(energies[last + 1] - energies[first]) / length
        left = float(self.powers_w[first - 1]) if first > 0 else self.neighbours_w[0]
        right = float(self.powers_w[last + 1]) if last + 1 < len(self.powers_w) else self.neighbours_w[1]
        scatter = _scatter(self.powers_w, first, last)
        of_load = math.sqrt(max(scatter**2 - self.noise_w**2 - self.timing_w**2, 0.0))
        return _SplitInterval(
            begin,
            length,
            power,
            power if left is None else left,
            power if right is None else right,
            max(scatter, self.noise_w, self.timing_w),
            max(of_load, self.gauge_w),
            (float(widths[first]), float(widths[last + 1])),
        )


def _scatter(powers: FloatArray, first: int, last: int) -> float:
    """Standard deviation of the intervals near one, from differences of neighbours on the same side of it."""
    before = np.diff(powers[max(first - _NEARBY, 0) : first])
    after = np.diff(powers[last + 1 : last + 1 + _NEARBY])
    differences = np.sort(np.abs(np.concatenate([before, after])))
    if len(differences) == 0:
        return 0.0
    # Half of a squared difference is the variance. The larger half of them may be changes of the load.
    kept = _TRIM_CORRECTION * differences[: (len(differences) + 1) // 2] if len(differences) > 2 else differences
    return math.sqrt(float(np.mean(kept**2)) / 2.0)


def _sensor_noise(powers: FloatArray, first: int, last: int, timing_w: float) -> float:
    """Error of each interval's power: the least scatter observed, bounded by what can be the sensor's."""
    margin = max(0, _NOISE_INTERVALS - (last - first)) // 2 + 1
    near = powers[max(first - margin, 0) : last + 1 + margin]
    if len(near) < 3:
        return 0.0
    least = float(np.quantile(np.abs(np.diff(near)), 0.25)) / _QUARTILE
    # The relative error of this variance; at least half of it is attributed to the sensor.
    relative = math.sqrt(2.0 / (_QUARTILE_EFFICIENCY * (len(near) - 1)))
    own = math.sqrt(max(least**2 - timing_w**2, min(0.5 * relative, 1.0) * least**2))
    return min(own, _noise_bound(float(np.mean(near))))


def _noise_bound(power_w: float) -> float:
    return max(_NOISE_FRACTION * power_w, _NOISE_W)


def _outside(moments: FloatArray, powers: FloatArray, begin_s: float, end_s: float, flags: list[str]) -> tuple[float, float]:
    """Energy before the first step and after the last, extrapolated at the power there, and its variance."""
    energy = variance = 0.0
    for gap, power, flag in (
        (float(moments[0]) - begin_s, float(powers[0]), BEFORE),
        (end_s - float(moments[-1]), float(powers[-1]), AFTER),
    ):
        if gap > 0.0:
            # Power there may have been anything from zero to twice that: uniform.
            energy += power * gap
            variance += (power * gap) ** 2 / 3.0
            flags.append(flag)
    return energy, variance
