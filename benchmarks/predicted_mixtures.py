r"""Time and energy of several kernels in turn, predicted from their curves: what a counter of energy can be held against.

    calls    ▮▮▮▯▯▯▯▯▮▮▮▯▯▯▯▯▮▮▮▯▯▯▯▯      each kernel's calls, in a task that repeats
    clocks   ▔▔▔▔▔▔▔▔╲▁▁▁▁▁▁▁╱▔▔▔▔▔▔▔      as counted while it ran, for each kernel by itself: products skip cycles

Clocks are given, since the regulator chooses them; what is predicted is what happens at them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.kernels.natural.curves import KernelCurve

_END = 0.02  # by which a clock may lie beyond a curve, relative to it, and count as its end


@dataclass(frozen=True, slots=True)
class PredictedMixture:
    """Time and energy of a mixture.

    Attributes:
        time_s: of all of it.
        energy_j: the same.
        time_se_s, energy_se_j: standard errors, of the curves alone.
        beyond: fraction of the time at clocks beyond those that a kernel was seen at, by up to 2 %.
    """

    time_s: float
    energy_j: float
    time_se_s: float
    energy_se_j: float
    beyond: float

    @property
    def power_w(self) -> float:
        """Mean power."""
        return self.energy_j / self.time_s


def predict_mixture(
    steps: Sequence[tuple[str, float]],
    curves: Mapping[str, KernelCurve],
    core_mhz: float | Mapping[str, float | FloatArray],
    *,
    power_factor: float = 1.0,
) -> PredictedMixture:
    """Predict time and energy of kernels in turn.

    Args:
        steps: names of kernels, and how often each is called.
        curves: by kernel.
        core_mhz: the clock, or that of each kernel; where it is an array, its calls are spread evenly over these clocks.
        power_factor: by which power is larger than that of the curves, such as for another temperature.

    Raises:
        BadInputError: a kernel has no curve, or a clock lies beyond it.
    """
    calls: dict[str, float] = {}
    for name, number in steps:
        calls[name] = calls.get(name, 0.0) + number
    parts = []
    for name, number in calls.items():
        clocks = np.atleast_1d(np.asarray(core_mhz[name] if isinstance(core_mhz, Mapping) else core_mhz, dtype=float))
        parts.append(_Part.of(curves, name, clocks, np.full(len(clocks), number / len(clocks))))
    return _total(parts, power_factor)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One kernel's time and energy, and how they change with the logarithms of its curve."""

    curve: KernelCurve
    time_s: float
    energy_j: float
    by_time: FloatArray  # of time, by log time at the knots
    energy_by_time: FloatArray
    energy_by_power: FloatArray
    beyond_s: float

    @classmethod
    def of(cls, curves: Mapping[str, KernelCurve], name: str, clocks: FloatArray, calls: FloatArray) -> _Part:
        if name not in curves:
            raise BadInputError(f"kernel {name}: no curve of it; measure it at natural clocks first")
        curve = curves[name]
        low, high = float(curve.core_mhz[0]), float(curve.core_mhz[-1])
        near = np.where(clocks < low, np.maximum(clocks, low * (1.0 - _END)), np.minimum(clocks, high * (1.0 + _END)))
        ends = np.clip(near, low, high)
        beyond = ends != near
        weights = curve.weights(np.where(near == clocks, ends, clocks))  # raises where they are too far away
        call_s = np.exp(weights @ np.log(curve.time_s))
        power_w = np.exp(weights @ np.log(curve.power_w))
        seconds = calls * call_s
        joules = seconds * power_w
        return cls(
            curve, float(seconds.sum()), float(joules.sum()), weights.T @ seconds, weights.T @ joules, weights.T @ joules,
            float(seconds[beyond].sum()),
        )  # fmt: skip


def _total(parts: Sequence[_Part], power_factor: float) -> PredictedMixture:
    if not parts:
        raise BadInputError("`steps`: no kernel to predict")
    time_s, energy_j = sum(part.time_s for part in parts), sum(part.energy_j for part in parts)
    time_variance = sum(float(part.by_time @ part.curve.log_time_cov @ part.by_time) for part in parts)
    energy_variance = sum(
        float(part.energy_by_time @ part.curve.log_time_cov @ part.energy_by_time)
        + float(part.energy_by_power @ part.curve.log_power_cov @ part.energy_by_power)
        for part in parts
    )
    beyond = sum(part.beyond_s for part in parts) / time_s
    return PredictedMixture(time_s, power_factor * energy_j, time_variance**0.5, power_factor * energy_variance**0.5, beyond)
