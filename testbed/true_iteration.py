"""What an iteration of a simulated GPU truly takes when every kernel has clocks of its own."""

from __future__ import annotations

import dataclasses

import numpy as np

from wastenot.core.setting import Setting
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.preset import Preset
from wastenot.devices.simulated.trace import carry_over_j
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.order import order_of_steps, stretches

NO_LIMIT_W = 1e5


def true_iteration(preset: Preset, kernels: list[KernelSpec], settings: list[Setting]) -> tuple[float, float]:
    """Time and energy, carry-over from kernel to kernel included; the power limit holds the mean, which must keep it."""
    limit_w = preset.parameters.power_limit_w or preset.power_limits_w[1]
    parameters = dataclasses.replace(preset.parameters, power_limit_w=NO_LIMIT_W)
    free = ModelPhysics(preset.model_copy(update={"parameters": parameters}))
    points = [
        free.operating_point(Task.of_kernel(kernel), setting, preset.thermal.reference_c)
        for kernel, setting in zip(kernels, settings, strict=True)
    ]
    order = order_of_steps(kernels)
    time_s = sum(kernel.count * point.time_s for kernel, point in zip(kernels, points, strict=True))
    energy_j = sum(kernel.count * point.time_s * point.power_w for kernel, point in zip(kernels, points, strict=True))
    for before, own, lasting, times in stretches(order):
        seconds = np.asarray(lasting * points[own].time_s)
        watts = np.asarray(points[before].power_w), np.asarray(points[own].power_w)
        energy_j += times * float(carry_over_j(preset.dynamics, *watts, seconds))
    assert energy_j / time_s <= limit_w, "the limit holds the iteration: this is not what it takes"
    return time_s, energy_j
