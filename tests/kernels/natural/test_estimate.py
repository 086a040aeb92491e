"""Curves estimated from runs on a simulated GPU, whose truth is known, are right within the errors that they state."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO
from wastenot.devices.instrument import Channel, Readings
from wastenot.devices.open import open_device
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.timeline import Phase, Subject, Timeline
from wastenot.kernels.natural.estimate import Estimate, estimate
from wastenot.workloads.build import build_workload
from wastenot.workloads.kernel import KernelSpec

PRODUCT = KernelSpec(
    "product", "product", "gemm", (1, 8192, 8192, 8192), 2.0 * 8192**3, 4.0 * 8192**2, 2.0 * 8192**2, "forward", None, 1,
    element_bytes=2,
)  # fmt: skip
KERNELS = ("softmax", "residual_1", "gelu", "projection_gemm")


@dataclass(frozen=True, slots=True)
class Run:
    timeline: Timeline
    subjects: tuple[tuple[str, str], ...]
    channels: tuple[Channel, ...]


def recorded() -> tuple[list[Run], ModelPhysics]:
    workload = build_workload("gpt3-xl")
    recorder = open_device("sim:h200").timelines()
    rng = np.random.default_rng(3)
    runs = []
    for name in KERNELS:
        kernel = next(one for one in workload.kernels if one.name == name)
        subjects = (Subject(kernel), Subject(PRODUCT))
        with recorder.prepare(subjects) as prepared:
            for wakes in (5, 5, 0):
                phases = [Phase(0, 0.6 if wakes else 0.1)]
                for _ in range(wakes):
                    phases += [Phase(1, rng.uniform(0.12, 0.2)), Phase(0, rng.uniform(0.1, 0.25))]
                if not wakes:
                    phases.append(Phase(1, 0.15))
                    for _ in range(50):
                        phases += [Phase(0, rng.uniform(0.008, 0.02)), Phase(1, rng.uniform(0.006, 0.012))]
                named = tuple((one.kernel.name, one.data) for one in subjects)
                runs.append(Run(prepared.run(phases), named, recorder.channels))
    return runs, recorder._bench.physics


@pytest.fixture(scope="module")
def runs_and_physics() -> tuple[list[Run], ModelPhysics]:
    return recorded()


@pytest.fixture(scope="module")
def estimated(runs_and_physics: tuple[list[Run], ModelPhysics]) -> Estimate:
    return estimate(runs_and_physics[0])


def off(curves: Estimate, physics: ModelPhysics) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Errors of log time and power at knots from 1.45 GHz, and each in standard errors."""
    workload = build_workload("gpt3-xl")
    time, power, time_z, power_z = [], [], [], []
    for curve in curves.curves:
        kernel = next(one for one in workload.kernels if one.name == curve.kernel)
        truth = physics.response(kernel, curve.core_mhz, AUTO)
        warmer_c = curves.temperature_c - physics.preset.thermal.reference_c
        power_w = truth.power_w.sum(axis=0) + physics.leakage_w_per_c(curve.core_mhz) * warmer_c
        used = curve.core_mhz >= 1450.0
        time.append(np.log(curve.time_s / truth.time_s)[used])
        power.append(np.log(curve.power_w / power_w)[used])
        time_z.append(time[-1] / np.sqrt(np.diag(curve.log_time_cov))[used])
        power_z.append(power[-1] / np.sqrt(np.diag(curve.log_power_cov))[used])
    return tuple(np.concatenate(each) for each in (time, power, time_z, power_z))  # type: ignore[return-value]


def test_time_and_power_by_clock_are_right_within_their_errors(
    runs_and_physics: tuple[list[Run], ModelPhysics], estimated: Estimate
) -> None:
    time, power, time_z, power_z = off(estimated, runs_and_physics[1])
    assert len(time) >= 30
    assert np.sqrt(np.mean(time**2)) < 0.005
    assert np.sqrt(np.mean(power**2)) < 0.02
    for z in (time_z, power_z):
        assert np.sqrt(np.mean(z**2)) < 2.0  # errors of a run are shared by all clocks: few independent ones


def test_auto_is_where_the_card_has_the_kernel(estimated: Estimate) -> None:
    light, product = estimated.of("softmax").auto, estimated.of("projection_gemm").auto
    assert light.core_mhz == pytest.approx(1980.0, rel=0.002)
    assert not light.limited
    assert product.limited
    assert 1400.0 < product.core_mhz < 1600.0
    assert estimated.of("product").core_mhz[0] < 1600.0


def test_readings_that_come_later_than_thought_are_found_out(
    runs_and_physics: tuple[list[Run], ModelPhysics], estimated: Estimate
) -> None:
    """The same readings, 4 ms later: the delay is a nuisance that the runs themselves determine."""
    later = []
    for run in runs_and_physics[0]:
        log = run.timeline.readings["total"]
        readings = {"total": Readings(log.moment_s + 0.004, log.power_w)}
        later.append(Run(replace(run.timeline, readings=readings), run.subjects, run.channels))
    exact = [Run(run.timeline, run.subjects, (replace(run.channels[0], delay_error_s=0.0),)) for run in later]
    moved = [_moved(estimated, estimate(runs)) for runs in (later, exact)]
    assert moved[0] < 0.005
    assert moved[1] > 2.0 * moved[0]  # had it been believed


def _moved(before: Estimate, after: Estimate) -> float:
    """By how much powers differ, root mean square."""
    off = []
    for one, two in zip(before.curves, after.curves, strict=True):
        clocks = np.linspace(max(one.core_mhz[0], two.core_mhz[0]), min(one.core_mhz[-1], two.core_mhz[-1]), 9)
        off.append(np.log(two.power_at(clocks) / one.power_at(clocks)))
    return float(np.sqrt(np.mean(np.concatenate(off) ** 2)))


def test_without_runs_there_is_nothing_to_estimate() -> None:
    with pytest.raises(BadInputError, match="no run at natural clocks"):
        estimate([])


def test_without_power_readings_times_are_still_known(runs_and_physics: tuple[list[Run], ModelPhysics]) -> None:
    run = runs_and_physics[0][0]
    found = estimate([Run(replace(run.timeline, readings={}), run.subjects, run.channels)])
    assert found.curves[0].readings == 0
    assert "no power reading shows it" in found.curves[0].notes
    assert found.curves[0].groups > 500


def test_a_card_that_keeps_one_clock_gives_curves_of_one_point(runs_and_physics: tuple[list[Run], ModelPhysics]) -> None:
    still = []
    for run in runs_and_physics[0][:3]:
        clocks = np.full(len(run.timeline.phase), 1980.0)
        still.append(Run(replace(run.timeline, core_mhz=clocks), run.subjects, run.channels))
    curve = estimate(still).curves[0]
    assert curve.core_mhz == pytest.approx([1980.0])
    assert any("none of the loads made it run at another clock" in note for note in curve.notes)
    assert curve.auto.core_mhz == pytest.approx(1980.0)


def test_few_groups_give_a_curve_without_failing(runs_and_physics: tuple[list[Run], ModelPhysics]) -> None:
    run = runs_and_physics[0][0]
    few = slice(0, 9)
    names = ("phase", "subject", "calls", "begin_s", "end_s", "core_mhz")
    cut = replace(run.timeline, **{name: getattr(run.timeline, name)[few] for name in names}, counted_mhz=None)
    curve = estimate([Run(cut, run.subjects, run.channels)]).curves[0]
    assert curve.groups <= 7
    assert np.all(np.isfinite(curve.time_s))
