"""Kernels of an engine's steps that were measured at a card's own clocks only, at other clocks: by the curves of its kind.

A kernel's level is measured, how it goes with the clock is taken from a simulated GPU of the same model, whose parameters
were fitted to other measurements. So a card whose clocks nobody may set gets a profile by clock: a forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.serving.model.from_kernels import StepKernels, kernels_of
from wastenot.study.sweep import Sweep

_STEP_MHZ = 30.0
_LOWEST_SHARE = 0.4  # of the highest clock


def _simulated(like: str) -> SimulatedDevice:
    device = open_device(like) if like.startswith("sim:") else None
    if not isinstance(device, SimulatedDevice):
        raise BadInputError(f"`curves` {like}: must be a simulated GPU, such as sim:h200")
    return device


def check_curves(like: str) -> None:
    """Refuse curves that are not of a simulated GPU.

    Raises:
        BadInputError: says which there are.
    """
    _simulated(like)


def kernels_by_curves(sweep: Sweep, tasks: Sequence[Task], like: str) -> StepKernels:
    """The kernels of steps at clocks that they were not measured at.

    Args:
        sweep: of them at the card's own clocks.
        tasks: that it measured, each one kernel, by its name in the sweep.
        like: the simulated GPU that their curves are taken from, such as ``sim:h200``.

    Raises:
        BadInputError: ``like`` is no simulated GPU, or the sweep has other kernels.
    """
    device, kernels = _simulated(like), {task.name: task.steps[0][0] for task in tasks}
    alone = kernels_of(sweep)
    highest = max(max(clocks) for clocks in device.clocks.supported_clocks().values())
    clocks = np.arange(highest, _LOWEST_SHARE * highest, -_STEP_MHZ)
    index, time_s, energy_j = [], [], []
    for place, kernel in enumerate(sweep.kernels):
        if kernel.name not in kernels:
            raise BadInputError(f"sweep of '{sweep.workload}': '{kernel.name}' is not one of the kernels")
        own = sweep.kernel_index == place
        level_s, level_j = float(sweep.time_s[own].mean()), float(sweep.energy_j[own].mean())
        spec = kernels[kernel.name]
        auto = device.truth(Task.of_kernel(spec), AUTO)
        for clock in clocks.tolist():
            there = device.truth_at(spec, clock)
            index.append(place)
            time_s.append(level_s * there.time_s / auto.time_s)
            energy_j.append(time_s[-1] * level_j / level_s * there.power_w / auto.power_w)
    asked, nothing = np.tile(clocks, len(sweep.kernels)), np.full(len(index), np.nan)
    curves = Sweep(
        sweep.kernels, np.array(index), asked, nothing, nothing, np.array(time_s), np.array(energy_j), nothing, nothing,
        asked, nothing, nothing, nothing, workload=sweep.workload, device=sweep.device, origin="forecast",
    )  # fmt: skip
    return replace(kernels_of(curves), limit_w=alone.limit_w)
