"""Fits the traits of one kind of kernels to measurements: time and power at auto, and both by clock where they were seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from presets.h200_data import Curve, Measured
from wastenot.devices.simulated import model
from wastenot.devices.simulated.demands import CORE_OF_LATENCY, effective_flops, moved_bytes, ramped, rows_apart, rows_of
from wastenot.devices.simulated.model import DeviceParameters
from wastenot.devices.simulated.preset import OpTraits

Array = NDArray[np.float64]


FITTED = (
    "flops_per_s", "bytes_per_s", "issue_bytes_per_s", "fixed_s", "latency_s", "ramp_s", "row_s", "turn_s", "score_s",
    "clock_w", "flop_j", "issue_byte_j",
)  # fmt: skip
"""Traits that are fitted, by their logarithms."""

_TIME_SCATTER, _POWER_SCATTER = 0.1, 0.06  # of kernels of a kind about their traits, in logarithms
_ATTENTION_SCATTER = 0.03  # of its time, which whole tiles explain
_TIME_BY_CLOCK, _POWER_BY_CLOCK = 0.012, 0.02  # of a curve about its mean
_POINTS_OF_A_CURVE = 4.0  # that a curve counts as, however many it has
_FAR = 0.3  # a start that is no nearer, in logarithms, is left out
_OUTLYING = 2.0  # from how many scatters on a residual counts less


@dataclass(frozen=True, slots=True)
class Lean:
    """What a kind leans on: a guess, and the standard deviation of the logarithm of each trait about it."""

    guess: OpTraits
    doubt: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Points:
    """Points of the curves of several kernels: of which kernel each is, and the matrix that takes a curve's mean."""

    of: NDArray[np.intp]
    core_mhz: Array
    logarithm: Array
    weight: Array
    scale: Array

    @classmethod
    def of_curves(cls, curves: Sequence[Curve | None], counts: float) -> _Points:
        """Points of curves, each of which counts as so many points however many it has."""
        there = [(index, curve) for index, curve in enumerate(curves) if curve is not None]
        of = np.concatenate([np.full(len(curve.value), index) for index, curve in there] or [np.zeros(0)]).astype(np.intp)
        clock, value, weight = (
            np.concatenate([getattr(curve, name) for _, curve in there] or [np.zeros(0)])
            for name in ("core_mhz", "value", "weight")
        )
        total = np.bincount(of, weight, minlength=len(curves))[of] if len(of) else weight
        share = weight / total
        number = np.bincount(of, minlength=len(curves))[of] if len(of) else weight
        return cls(of, clock, np.log(value), share, np.sqrt(share * np.minimum(number, counts)))

    def about_mean(self, off: Array, kernels: int) -> Array:
        """Deviations from each curve's mean."""
        return off - np.bincount(self.of, self.weight * off, minlength=kernels)[self.of]


@dataclass(frozen=True, slots=True)
class _Members:
    """Kernels of a kind as arrays."""

    flops: Array
    effective: Array
    moved: Array
    rows: Array
    width: Array
    scores: Array
    apart: Array
    time_s: Array
    power_w: Array
    core_mhz: Array
    times: _Points
    powers: _Points


def members_of(operations: Sequence[Measured], tiles_at_once: int) -> _Members:
    """Kernels as arrays."""
    effective = np.array([effective_flops(one.kernel, tiles_at_once) for one in operations])
    return _Members(
        np.array([one.kernel.flops for one in operations]),
        effective,
        np.array([moved_bytes(one.kernel, 0.0) for one in operations]),
        *np.array([rows_of(one.kernel, flops) for one, flops in zip(operations, effective, strict=True)], dtype=float).T,  # type: ignore[call-arg]
        np.array([rows_apart(one.kernel) for one in operations]),
        np.array([one.time_s for one in operations]),
        np.array([one.power_w for one in operations]),
        np.array([one.core_mhz for one in operations]),
        _Points.of_curves([one.times for one in operations], _POINTS_OF_A_CURVE),
        _Points.of_curves([one.powers for one in operations], _POINTS_OF_A_CURVE),
    )


class _Clocked:
    """What the device does at given core clocks, for every kernel alike."""

    def __init__(self, device: DeviceParameters, core_mhz: Array) -> None:
        self.device = device
        self.x = model.core_ratio(device, core_mhz)
        voltage = model.voltage(device, core_mhz)
        self.squared = voltage**2
        self.base_w = device.base_w[-1] + device.leakage_w * (voltage**model.LEAKAGE_VOLTAGE_EXPONENT - 1.0)
        ones = np.ones_like(self.x)
        self.byte_time = model.smooth_maximum(device.core_bandwidth_sharpness, ones, device.core_bandwidth / self.x)

    def time(self, core_s: Array, memory_s: Array, fixed_s: Array) -> Array:
        """As :func:`wastenot.devices.simulated.model.time_s`, at the highest memory clock."""
        p = self.device.overlap_exponent
        core, memory = core_s / self.x, memory_s * self.byte_time
        largest = np.maximum(core, memory)
        return np.asarray(fixed_s + largest * ((core / largest) ** p + (memory / largest) ** p) ** (1.0 / p))

    def power(self, time_s: Array, clock_w: float, work_j: Array, memory_j: Array) -> Array:
        """As :func:`wastenot.devices.simulated.model.demanded_power_w`, at the highest memory clock."""
        return np.asarray(self.base_w + clock_w * self.squared * self.x + (work_j * self.squared + memory_j) / time_s)


def fit_kind(members: Sequence[Measured], device: DeviceParameters, lean: Lean) -> OpTraits:
    """Traits of a kind: the most probable ones, from several starts."""
    if not members:
        return lean.guess
    guess = lean.guess
    found = members_of(members, guess.tiles_at_once)
    times, powers, count = found.times, found.powers, len(members)
    clocked, timed, powered = (_Clocked(device, each) for each in (found.core_mhz, times.core_mhz, powers.core_mhz))
    doubt = np.array([lean.doubt[name] for name in FITTED])
    centre = np.array([max(getattr(guess, name), 1e-30) for name in FITTED])
    log_time, log_power = np.log(found.time_s), np.log(found.power_w)
    has_power = np.isfinite(log_power)
    scatter = np.array([_ATTENTION_SCATTER if one.kernel.op.startswith("attention") else _TIME_SCATTER for one in members])

    def residuals(logarithms: Array) -> Array:
        flops_per_s, bytes_per_s, issue, fixed_s, latency_s, ramp_s, row_s, *rest = centre * np.exp(logarithms)
        turn_s, score_s, clock_w, flop_j, issue_byte_j = rest
        chain_s = latency_s + found.width * turn_s
        rows_s = found.rows * row_s
        core_s = found.effective / flops_per_s + found.moved / issue + found.scores * score_s
        core_s = core_s + np.where(found.apart, 0.0, rows_s) + CORE_OF_LATENCY * chain_s
        fixed_s = fixed_s + np.where(found.apart, rows_s, 0.0) + (1.0 - CORE_OF_LATENCY) * chain_s
        memory_s = found.moved / bytes_per_s + ramped(found.moved) * ramp_s
        work_j = found.flops * flop_j + found.moved * issue_byte_j
        memory_j = found.moved * guess.byte_j
        time = clocked.time(core_s, memory_s, fixed_s)
        power = clocked.power(time, clock_w, work_j, memory_j)
        parts = [
            (np.log(time) - log_time) / scatter,
            np.where(has_power, np.log(power) - log_power, 0.0) / _POWER_SCATTER,
        ]
        if len(times.of):
            time = timed.time(core_s[times.of], memory_s[times.of], fixed_s[times.of])
            parts.append(times.scale * times.about_mean(np.log(time) - times.logarithm, count) / _TIME_BY_CLOCK)
        if len(powers.of):
            of = powers.of
            time = powered.time(core_s[of], memory_s[of], fixed_s[of])
            power = powered.power(time, clock_w, work_j[of], memory_j[of])
            parts.append(powers.scale * powers.about_mean(np.log(power) - powers.logarithm, count) / _POWER_BY_CLOCK)
        off = np.concatenate(parts) / _OUTLYING
        robust = _OUTLYING * np.sign(off) * np.sqrt(2.0 * (np.sqrt(1.0 + off**2) - 1.0))
        return np.concatenate([robust, logarithms / doubt])

    starts = _starts(found, centre)
    best = min((least_squares(residuals, start, max_nfev=50) for start in starts), key=lambda one: float(one.cost))
    values = centre * np.exp(best.x)
    return guess.model_copy(update={name: float(value) for name, value in zip(FITTED, values, strict=True)})


def _starts(found: _Members, centre: Array) -> Iterable[Array]:
    """At the guess, and where one limit alone takes the time that was measured: a limit far off is not felt from afar."""
    yield np.zeros(len(FITTED))
    rates = {"flops_per_s": found.effective, "issue_bytes_per_s": found.moved, "bytes_per_s": found.moved}
    for name, amounts in rates.items():
        place = FITTED.index(name)
        start = np.zeros(len(FITTED))
        rate = float(np.median(amounts / found.time_s))
        if rate > 0.0 and abs(step := np.log(rate / centre[place])) > _FAR:
            start[place] = step
            yield start
