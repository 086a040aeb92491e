"""Time and power of a kernel as functions of the SM clock, over the range of clocks that it was seen at.

    time    ╲·                     ┬ error       knots: clocks at which the curve is given
              ╲·_                  ┴
                 ╲·____·__·
                ├──────────────────┤
               1.43              1.98 GHz

Between knots a curve is a straight line in logarithms; beyond them nothing is known. Its slopes are bounded by physics,
whatever the kernel: a lower clock never makes a call faster (log time over log clock: at most 0), and never costs it more
cycles (at least -1). Whatever is estimated or drawn is moved to the nearest curve that keeps to these bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.origin import Origin
from wastenot.planning.natural import hat_weights

_ROUNDED_MHZ = 0.5  # by which a clock may lie outside


@dataclass(frozen=True, slots=True)
class AutoPoint:
    """A kernel by itself in steady state, at the clocks that the card chooses.

    Attributes:
        core_mhz: mean SM clock.
        time_s: of a call.
        power_w: mean power.
        time_se_s, power_se_w: standard errors.
        limited: whether the card held its clock down, so that the clock depends on the kernel's power.
    """

    core_mhz: float
    time_s: float
    power_w: float
    time_se_s: float
    power_se_w: float
    limited: bool

    @property
    def energy_j(self) -> float:
        """Of a call."""
        return self.time_s * self.power_w


@dataclass(frozen=True, slots=True, eq=False)
class KernelCurve:
    """Time and power of one kernel by SM clock; arrays of shape (knots,) unless stated.

    Attributes:
        kernel: its name.
        core_mhz: knots, ascending.
        time_s: of a call at each knot.
        power_w: at each knot.
        log_time_cov: covariance of the errors of log time, shape (knots, knots).
        log_power_cov: the same of log power.
        auto: by itself in steady state.
        groups: number of groups of calls that time is from.
        readings: number of power readings that power is from.
        notes: what a reader should know, a line each.
    """

    kernel: str
    core_mhz: FloatArray
    time_s: FloatArray
    power_w: FloatArray
    log_time_cov: FloatArray
    log_power_cov: FloatArray
    auto: AutoPoint
    groups: int
    readings: int
    notes: tuple[str, ...] = ()

    @property
    def energy_j(self) -> FloatArray:
        """Of a call at each knot."""
        return self.time_s * self.power_w

    @property
    def time_se_s(self) -> FloatArray:
        """Standard error of time at each knot."""
        return np.asarray(self.time_s * np.sqrt(np.diag(self.log_time_cov)))

    @property
    def energy_se_j(self) -> FloatArray:
        """Standard error of energy at each knot."""
        return np.asarray(self.energy_j * np.sqrt(np.diag(self.log_time_cov) + np.diag(self.log_power_cov)))

    def time_at(self, core_mhz: ArrayLike) -> FloatArray:
        """Time of a call at given clocks, in seconds.

        Raises:
            BadInputError: a clock lies outside the range seen.
        """
        return np.asarray(np.exp(self.weights(core_mhz) @ np.log(self.time_s)))

    def power_at(self, core_mhz: ArrayLike) -> FloatArray:
        """Power at given clocks, in watts.

        Raises:
            BadInputError: a clock lies outside the range seen.
        """
        return np.asarray(np.exp(self.weights(core_mhz) @ np.log(self.power_w)))

    def weights(self, core_mhz: ArrayLike) -> FloatArray:
        """What each knot's logarithm counts at given clocks; shape (..., knots).

        Raises:
            BadInputError: a clock lies outside the range seen.
        """
        clock = np.asarray(core_mhz, dtype=float)
        low, high = float(self.core_mhz[0]), float(self.core_mhz[-1])
        outside = (clock < low - _ROUNDED_MHZ) | (clock > high + _ROUNDED_MHZ) | np.isnan(clock)
        if np.any(outside):
            asked = float(clock[outside].ravel()[0]) if clock.ndim else float(clock)
            raise BadInputError(f"kernel {self.kernel}: not seen at {asked:.0f} MHz, only from {low:.0f} to {high:.0f} MHz")
        return hat_weights(np.log(clock), np.log(self.core_mhz))

    def draws(self, rng: np.random.Generator, number: int) -> tuple[FloatArray, FloatArray]:
        """Times and powers at the knots as they may truly be: errors drawn, within what physics allows.

        Args:
            rng: source of randomness.
            number: of draws.

        Returns:
            Times in seconds and powers in watts; shape (number, knots) each.
        """
        log_mhz = np.log(self.core_mhz)
        time = np.log(self.time_s) + _gaussian(rng, number, self.log_time_cov)
        power = np.log(self.power_w) + _gaussian(rng, number, self.log_power_cov)
        return np.exp(nearest_within(time, log_mhz, TIME_SLOPES)), np.exp(nearest_within(power, log_mhz, POWER_SLOPES))


@dataclass(frozen=True, slots=True, eq=False)
class NaturalCurves:
    """Curves of a workload's kernels on one device.

    Attributes:
        device: its label.
        workload: its name.
        origin: of the numbers.
        curves: of each kernel.
        temperature_c: mean temperature of the GPU meanwhile; ``None`` where it is unknown.
        seconds: device time that they took.
        notes: what a reader should know of them all, a line each.
    """

    device: str
    workload: str
    origin: Origin
    curves: tuple[KernelCurve, ...]
    temperature_c: float | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[KernelCurve]:
        return iter(self.curves)

    def __getitem__(self, kernel: str) -> KernelCurve:
        for curve in self.curves:
            if curve.kernel == kernel:
                return curve
        raise BadInputError(f"kernel {kernel}: not among those measured at natural clocks")


def _gaussian(rng: np.random.Generator, number: int, covariance: FloatArray) -> FloatArray:
    """Draws around 0; ``covariance`` may be singular."""
    size, along = np.linalg.eigh(covariance)
    root = along * np.sqrt(np.maximum(size, 0.0))
    return np.asarray(rng.standard_normal((number, len(covariance))) @ root.T)


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
