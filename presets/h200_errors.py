"""What a preset of the H200 says of measured kernels, and of kernels that it was not fitted to, beside the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from presets.h200_data import Curve, Measured
from presets.h200_kinds import fit_ops
from wastenot.core.setting import AUTO
from wastenot.devices.protocol import Task
from wastenot.devices.simulated import model
from wastenot.devices.simulated.demands import analytical_parameters
from wastenot.devices.simulated.kinds import traits_for
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.preset import Preset
from wastenot.workloads.kernel import KernelSpec

Array = NDArray[np.float64]

HALVES = 50
"""Random halves that errors of kernels not fitted to are the mean over."""

LOW_MHZ, HALFWAY_MHZ, HIGH_MHZ = 1500.0, 1700.0, 1975.0
LEAST_READINGS = 2  # of power, below halfway

_WARM_C = 57.0  # the median of these sweeps


@dataclass(frozen=True, slots=True)
class Off:
    """Predicted at auto, where the model chooses the clock too, against measured: relative errors."""

    measured: Measured
    time: float
    power: float


def errors_at_auto(preset: Preset, operations: Sequence[Measured]) -> list[Off]:
    """How a preset's analytical operations run at default clocks, beside the measurements.

    Those that ran too briefly for the power limit to act are predicted at the clock that they ran at.
    """
    physics = ModelPhysics(preset)
    found = []
    for one in operations:
        if one.settled:
            point = physics.operating_point(Task.of_kernel(one.kernel), AUTO, _WARM_C)
            time_s, power_w = point.time_s, point.power_w
        else:
            time_s, power_w = map(float, predicted(preset, one.kernel, np.asarray(one.core_mhz)))
        found.append(Off(one, time_s / one.time_s - 1.0, power_w / one.power_w - 1.0))
    return found


def errors_of_halves(preset: Preset, operations: Sequence[Measured], seed: int, *, apart: bool = False) -> list[Off]:
    """Errors of each kernel where only a random half of all, itself not among them, was fitted to.

    Args:
        preset: with the parameters of the device.
        operations: all that was measured.
        seed: of the halves.
        apart: whether kernels of the same work, such as gradients of layer norms in three places, share a half.
    """
    works: list[object] = [one.work if apart else index for index, one in enumerate(operations)]
    different = list(dict.fromkeys(works))
    order = np.random.default_rng(seed).permutation(len(different))
    half_of = {different[index]: place % 2 for place, index in enumerate(order)}
    halves = [[one for one, work in zip(operations, works, strict=True) if half_of[work] == half] for half in (0, 1)]
    found = []
    for fitted_to, rest in (halves, halves[::-1]):
        ops = fit_ops(fitted_to, preset.parameters)
        found += errors_at_auto(preset.model_copy(update={"ops": ops}), rest)
    return found


def predicted(preset: Preset, kernel: KernelSpec, core_mhz: Array) -> tuple[Array, Array]:
    """Time and power of a kernel at core clocks, as if no limit held them, at the highest memory clock."""
    parameters = analytical_parameters(kernel, traits_for(kernel, preset.ops))
    memory_mhz = preset.parameters.memory_states_mhz[-1]
    time_s = model.time_s(preset.parameters, parameters, core_mhz, memory_mhz)
    return time_s, model.demanded_power_w(preset.parameters, parameters, core_mhz, memory_mhz, time_s)


def curve_at(curve: Curve, core_mhz: float, degree: int = 2) -> float:
    """A measured curve at a clock: a polynomial in logarithms through its points near there, which evens out their noise."""
    near = 120.0 if degree > 1 else 1000.0  # few points are a straight line
    weight = np.sqrt(curve.weight) * np.exp(-0.5 * ((curve.core_mhz - core_mhz) / near) ** 2)
    x = np.log(curve.core_mhz / core_mhz)
    degree = degree if len(x) > 5 else 1
    return float(np.exp(np.polynomial.polynomial.polyfit(x, np.log(curve.value), degree, w=weight)[0]))


def time_ratio(preset: Preset, one: Measured) -> tuple[float, float] | None:
    """Predicted and measured time at the low clock over that at the high one."""
    if one.times is None or not spans(one.times.core_mhz):
        return None
    low, high = (curve_at(one.times, clock) for clock in (LOW_MHZ, HIGH_MHZ))
    times, _ = predicted(preset, one.kernel, np.array([LOW_MHZ, HIGH_MHZ]))
    return float(times[0] / times[1]), low / high


def energy_ratio(preset: Preset, one: Measured) -> tuple[float, float] | None:
    """Predicted and measured energy at the low clock over that at the high one."""
    if one.times is None or one.powers is None or not (spans(one.times.core_mhz) and spans(one.powers.core_mhz)):
        return None
    if np.sum(one.powers.core_mhz < HALFWAY_MHZ) < LEAST_READINGS:
        return None
    low_s, high_s = (curve_at(one.times, clock) for clock in (LOW_MHZ, HIGH_MHZ))
    low_w, high_w = (curve_at(one.powers, clock, 1) for clock in (LOW_MHZ, HIGH_MHZ))
    times, powers = predicted(preset, one.kernel, np.array([LOW_MHZ, HIGH_MHZ]))
    energy = times * powers
    return float(energy[0] / energy[1]), low_s * low_w / (high_s * high_w)


def spans(clocks: Array) -> bool:
    """Whether clocks reach near both ends, so that little is extrapolated."""
    return bool(clocks.min() <= LOW_MHZ + 30.0 and clocks.max() >= HIGH_MHZ - 30.0)
