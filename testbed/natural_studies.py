"""Studies of curves at natural clocks whose truth is known: a simulated GPU's, with errors drawn as they are stated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wastenot.core.setting import AUTO
from wastenot.devices.open import open_device
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.kernels.natural.curves import AutoPoint, KernelCurve, NaturalCurves
from wastenot.kernels.natural.storage import curves_of, packed_curve, rows_of_curve
from wastenot.meters.tasks import WorkloadTasks, find_tasks
from wastenot.study.coverage import Intent
from wastenot.study.natural_log import keep_curve
from wastenot.study.store import Study, open_study
from wastenot.workloads.identity import WorkloadKey

LOW_MHZ, KNOTS = 1440.0, 13
SMOOTH = 0.15  # length over the logarithm of the clock at which errors of a curve become independent


@dataclass(frozen=True, slots=True)
class Errors:
    """Standard errors of log time and log power; half of their variance is an error of the level."""

    time: float = 2e-3
    power: float = 8e-3


def true_curve(device: SimulatedDevice, kernel: object, auto: AutoPoint, errors: Errors) -> KernelCurve:
    """The exact curve of a kernel, with the covariances that errors of this size have."""
    high = auto.core_mhz if auto.limited else 1980.0
    knots = np.linspace(min(LOW_MHZ, auto.core_mhz - 45.0), max(high, 1500.0), KNOTS)
    points = [device.truth_at(kernel, float(mhz)) for mhz in knots]
    apart = (np.log(knots)[:, None] - np.log(knots)) / SMOOTH
    shape = 0.5 + 0.5 * np.exp(-0.5 * apart**2) + 1e-8 * np.eye(KNOTS)
    return KernelCurve(
        kernel.name, knots, np.array([point.time_s for point in points]), np.array([point.power_w for point in points]),
        errors.time**2 * shape, errors.power**2 * shape, auto, 1000, 60,
    )  # fmt: skip


def noisy(curve: KernelCurve, rng: np.random.Generator) -> KernelCurve:
    """A curve with errors drawn as its covariances say."""
    parts = {}
    for name, value, covariance in (
        ("time_s", curve.time_s, curve.log_time_cov),
        ("power_w", curve.power_w, curve.log_power_cov),
    ):
        parts[name] = value * np.exp(rng.multivariate_normal(np.zeros(len(value)), covariance))
    return KernelCurve(
        curve.kernel, curve.core_mhz, **parts, log_time_cov=curve.log_time_cov, log_power_cov=curve.log_power_cov,
        auto=curve.auto, groups=curve.groups, readings=curve.readings,
    )  # fmt: skip


def exact_curves(device: SimulatedDevice, tasks: WorkloadTasks, errors: Errors) -> list[KernelCurve]:
    """The exact curves of a workload's kernels."""
    curves = []
    for task in tasks.tasks:
        point = device.truth(task, AUTO)
        limited = point.core_mhz < 1970.0
        auto = AutoPoint(point.core_mhz, point.time_s, point.power_w, 1e-3 * point.time_s, 2e-3 * point.power_w, limited)
        curves.append(true_curve(device, task.steps[0][0], auto, errors))
    return curves


def natural_study(
    path: Path, workload: str = "gpt3-xl", preset: str = "h200", errors: Errors | None = None, seed: int = 1
) -> Study:
    """A study of a simulated GPU's curves, with errors."""
    device, tasks = open_device(f"sim:{preset}"), find_tasks(workload, f"sim:{preset}")
    assert isinstance(device, SimulatedDevice)
    rng = np.random.default_rng(seed)
    study = open_study(path, create=True)
    with study.recording(
        tasks.kernels, workload=WorkloadKey(tasks.name, "natural"), device=f"sim:{preset}", origin="simulated",
        source="test", run=tasks.run, steps={task.name: task.steps for task in tasks.tasks}, intent=Intent("natural"),
    ) as recorder:  # fmt: skip
        for curve in exact_curves(device, tasks, errors or Errors()):
            drawn = noisy(curve, rng)
            keep_curve(
                recorder,
                curve.kernel,
                rows_of_curve(drawn, 18.0, "", 50.0),
                packed_curve(drawn, together=True, seconds=18.0),
            )
        recorder.finish()
    return study


def read_curves(study: Study, workload: str | None = None) -> NaturalCurves:
    """The curves that a study holds of all kernels of a workload, which may be left out where there is only one."""
    sweep = study.read(workload, "natural")
    return curves_of(sweep, study.natural_curves(sweep.workload, sweep.granularity))
