"""Sweeps and plans by the exact truth of simulated GPUs, which searches and forecasts are compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.preset import find_preset
from wastenot.kernels.forecast.kernels import candidate_settings
from wastenot.meters.tasks import WorkloadTasks, find_tasks
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner
from wastenot.study.store import Study, open_study
from wastenot.study.sweep import Sweep
from wastenot.sweeping.measure import measure_sweep
from wastenot.sweeping.point import PointOptions

ROUNDING = 1e-4  # of the energy: an interval that ends this close to the truth contains it


def true_sweep(device: SimulatedDevice, tasks: WorkloadTasks, settings: Iterable[Setting]) -> Sweep:
    """What a sweep without noise would measure at the default clocks and at these settings."""
    points = [
        (kernel, setting, device.truth(task, setting))
        for kernel, task in enumerate(tasks.tasks)
        for setting in (AUTO, *settings)
    ]
    absent = np.full(len(points), np.nan)
    clocks = [[np.nan if clock is None else clock for clock in (s.core_mhz, s.memory_mhz)] for _, s, _ in points]
    core, memory = np.array(clocks).T
    time = np.array([point.time_s for *_, point in points])
    energy = time * np.array([point.power_w for *_, point in points])
    index = np.array([kernel for kernel, *_ in points])
    return Sweep(tasks.kernels, index, core, memory, absent, time, energy, *[absent] * 6, workload="truth", device="truth")


def saving_of_measured(whole: Sweep, measured: Sweep, max_slowdown: float = 0.0) -> float:
    """What the best plan saves that uses measured points only, by the numbers of the whole sweep."""
    there = {(measured.kernels[i].name, measured.setting(r)) for r, i in enumerate(measured.kernel_index)}
    rows = np.array([(whole.kernels[i].name, whole.setting(r)) in there for r, i in enumerate(whole.kernel_index)])
    return -best_changes(rows_of(whole, rows), (max_slowdown,))[0]


def rows_of(sweep: Sweep, rows: np.ndarray) -> Sweep:
    """A sweep reduced to some of its rows."""
    columns = {name: value[rows] for name, value in vars(sweep).items() if isinstance(value, np.ndarray)}
    return replace(sweep, **columns)


def default_clock_rows(sweep: Sweep, device: str) -> Sweep:
    """The rows of a sweep at the default clocks, as if of this device."""
    rows = np.isnan(sweep.core_mhz) & np.isnan(sweep.memory_mhz) & np.isnan(sweep.power_limit_w)
    return replace(rows_of(sweep, rows), device=device)


def default_clock_study(preset: str, workload: str, seed: int, path: Path) -> Study:
    """A study of a simulated GPU at the default clocks."""
    device, tasks = open_device(f"sim:{preset}", seed=seed), find_tasks(workload, f"sim:{preset}")
    study = open_study(path, create=True)
    measure_sweep(device, tasks, study, (), options=PointOptions(2.0, 2.0))
    return study


def true_changes(preset: str, workload: str, bounds: tuple[float, ...], *, core_only: bool = False) -> tuple[float, ...]:
    """Energy changes of the best plans by a simulated GPU's truth, over the clocks that a forecast chooses from."""
    device, tasks = open_device(f"sim:{preset}"), find_tasks(workload, f"sim:{preset}")
    assert isinstance(device, SimulatedDevice)
    candidates = candidate_settings(find_preset(preset), core_only=core_only).settings
    return best_changes(true_sweep(device, tasks, candidates), bounds)


def best_changes(sweep: Sweep, bounds: tuple[float, ...]) -> tuple[float, ...]:
    """Energy changes of the best plans within each slowdown."""
    planner = Planner(sweep)
    return tuple(planner.plan(Objective("waste", bound, as_measured=True)).predicted.energy_change for bound in bounds)


def contains(interval: tuple[float, float], change: float) -> bool:
    """Whether an interval contains a true energy change."""
    return interval[0] - ROUNDING <= change <= interval[1] + ROUNDING
