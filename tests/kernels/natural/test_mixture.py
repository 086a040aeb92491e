"""Mixtures of kernels are predicted from curves of each, and held against the simulated GPU's energy counter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.predicted_mixtures import predict_mixture
from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO
from wastenot.devices.instrument import Channel
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.devices.timeline import Subject, Timeline
from wastenot.kernels.natural.curves import AutoPoint, KernelCurve
from wastenot.kernels.natural.estimate import estimate
from wastenot.kernels.natural.programmes import next_programme
from wastenot.sweeping.point import PointOptions, measure_point
from wastenot.workloads.build import build_workload
from wastenot.workloads.primitives import primitive


@dataclass(frozen=True, slots=True)
class Run:
    timeline: Timeline
    subjects: tuple[tuple[str, str], ...]
    channels: tuple[Channel, ...]


def flat(name: str, time_s: float, power_w: float, time_error: float = 0.0, power_error: float = 0.0) -> KernelCurve:
    ones = np.ones((2, 2))
    return KernelCurve(
        name, np.array([1500.0, 1900.0]), np.full(2, time_s), np.full(2, power_w), time_error**2 * ones,
        power_error**2 * ones, AutoPoint(1900.0, time_s, power_w, 0.0, 0.0, False), 10, 10,
    )  # fmt: skip


def test_times_and_energies_add_up_and_so_do_errors_that_kernels_do_not_share() -> None:
    curves = {"a": flat("a", 1e-3, 400.0, power_error=0.01), "b": flat("b", 2e-3, 600.0, time_error=0.01)}
    found = predict_mixture([("a", 10), ("b", 5), ("a", 2)], curves, {"a": np.array([1500.0, 1700.0]), "b": 1600.0})
    assert found.time_s == pytest.approx(12e-3 + 10e-3)
    assert found.energy_j == pytest.approx(4.8 + 6.0)
    assert found.time_se_s == pytest.approx(0.01 * 10e-3)
    assert found.energy_se_j == pytest.approx(np.hypot(0.048, 0.06))
    assert found.beyond == 0.0


def test_nothing_is_predicted_far_beyond_the_clocks_seen() -> None:
    curves = {"a": flat("a", 1e-3, 400.0)}
    assert predict_mixture([("a", 1)], curves, 1490.0).beyond == 1.0
    with pytest.raises(BadInputError, match="kernel a: not seen at 1450 MHz"):
        predict_mixture([("a", 1)], curves, 1450.0)
    with pytest.raises(BadInputError, match="kernel b: no curve"):
        predict_mixture([("b", 1)], curves, 1600.0)


def test_the_counter_agrees_on_mixtures_that_nothing_was_fitted_to() -> None:
    """Curves from programmes of each kernel; then a task of both, measured by the energy counter over seconds."""
    device = open_device("sim:h200")
    recorder = device.timelines()
    product = primitive("gemm:8192")[0]
    kernels = [next(one for one in build_workload("gpt3-xl").kernels if one.name == name) for name in ("softmax", "gelu")]
    runs = []
    for kernel in kernels:
        subjects = (Subject(kernel), Subject(product))
        named = tuple((one.kernel.name, one.data) for one in subjects)
        seen: list[Run] = []
        with recorder.prepare(subjects) as prepared:
            while phases := next_programme(seen, prepared.call_s, 9.0):
                seen.append(Run(prepared.run(phases), named, recorder.channels))
        runs += seen
    found = estimate(runs)
    curves = {curve.kernel: curve for curve in (*found.curves, *found.beside)}
    for kernel, calls in ((kernels[0], 4), (kernels[1], 12)):
        task = Task(f"{kernel.name} and products", ((kernel, calls), (product, 2)))
        point = measure_point(device, task, AUTO, PointOptions(warm_up_s=2.0, window_s=4.0))
        assert point.effective_core_mhz is not None
        predicted = predict_mixture([(kernel.name, calls), (product.name, 2)], curves, point.effective_core_mhz)
        assert predicted.time_s == pytest.approx(point.time_s, rel=0.01)
        assert predicted.energy_j == pytest.approx(point.energy_j, rel=0.02)
        assert predicted.energy_se_j < 0.02 * predicted.energy_j
