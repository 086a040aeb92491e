"""Filling a study: every kernel at every setting, in an order that changes clocks rarely, watched for drift."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import numpy as np

from wastenot.core.errors import BadInputError, CannotRunError, ClocksRefusedError
from wastenot.core.progress import Progress, Silent
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import is_virtual
from wastenot.devices.protocol import Device
from wastenot.meters.tasks import WorkloadTasks
from wastenot.study.coverage import Intent, Point
from wastenot.study.recorder import Measurement, Recorder
from wastenot.study.store import Study
from wastenot.sweeping.point import PointOptions, hottest_first, warm_up
from wastenot.sweeping.states import KeepAlone, can_measure, check_state, measurer

if TYPE_CHECKING:
    from wastenot.sweeping.estimate import Estimate

BASELINE_ROUNDS = 3  # how often everything is measured at auto: before, in the middle, after
_REPEATED_CLOCKS = 3  # low clocks, and high ones, that are measured at a second temperature
HEATING = 0.1  # of the time that a setting takes
_HELD_S = 0.25  # how long measurements may wait to be stored together, where a simulated GPU makes hundreds a second
_DRIFT = 0.01  # relative change of a baseline's time or energy that is reported
_DRIFT_ERRORS = 4.0  # in standard errors, that the change must exceed too


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One measurement to be made.

    Attributes:
        kernel: index of the kernel.
        repeat: index among the measurements of the same kernel and setting.
    """

    kernel: int
    setting: Setting
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Drift:
    """A baseline that differs from the first one of its kernel by more than noise explains.

    Attributes:
        kernel: its name.
        what: ``time`` or ``energy``.
        change: since the first round, as a fraction.
    """

    kernel: str
    what: Literal["time", "energy"]
    change: float


@dataclass(slots=True)
class SweepOutcome:
    """Outcome of a sweep.

    Attributes:
        measured: points measured now.
        found: points that were there before.
        skipped: why points could not be measured: reason and how many.
        drifted: baselines that changed on the way, in the order measured.
        out_of_time: whether the time allowed ended it.
        notes: what else a person should know of it, a line each.
        estimate: what there was to measure and how long that takes, where it was a dry run.
    """

    measured: int = 0
    found: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    drifted: list[Drift] = field(default_factory=list)
    out_of_time: bool = False
    notes: list[str] = field(default_factory=list)
    estimate: Estimate | None = None

    def add(self, other: SweepOutcome) -> None:
        """Add the outcome of a further part."""
        self.measured += other.measured
        self.found += other.found
        for reason, count in other.skipped.items():
            self.skipped[reason] = self.skipped.get(reason, 0) + count
        self.drifted += other.drifted
        self.out_of_time |= other.out_of_time
        self.notes += other.notes


def _sweep_points(kernels: Sequence[int], settings: Sequence[Setting], rounds: int = BASELINE_ROUNDS) -> list[SweepPoint]:
    """All points of a sweep: the baselines, half of the settings, the baselines, the other half, the baselines.

    Around the last baselines some points are measured again, at another temperature than before: high clocks while the GPU
    is cold from low ones, and low clocks each after a baseline that heats it. From them planning learns how leakage depends
    on temperature.
    """
    if not settings:
        return [SweepPoint(kernel, AUTO, repeat) for repeat in range(rounds) for kernel in kernels]
    baselines = [[SweepPoint(kernel, AUTO, repeat) for kernel in kernels] for repeat in range(BASELINE_ROUNDS)]
    half = (len(settings) + 1) // 2
    first, second = (
        [SweepPoint(kernel, setting) for setting in part for kernel in kernels]
        for part in (settings[:half], settings[half:])
    )
    highest = max((setting.memory_mhz or 0.0 for setting in settings), default=0.0)
    falling = sorted(
        (setting for setting in settings if (setting.memory_mhz or 0.0) == highest),
        key=lambda setting: -(setting.core_mhz or 0.0),
    )
    few = sorted({kernels[share * (len(kernels) - 1) // 3] for share in (1, 2, 3)})
    cold = [SweepPoint(kernel, setting, 1) for setting in _evenly(falling[: len(falling) // 2]) for kernel in few]
    hot = [
        point
        for turn, setting in enumerate(_evenly(falling[len(falling) // 2 :]))
        for point in (
            SweepPoint(kernels[0], AUTO, BASELINE_ROUNDS + turn),
            *(SweepPoint(kernel, setting, 1) for kernel in few),
        )
    ]
    return baselines[0] + first + baselines[1] + second + cold + baselines[2] + hot


def _evenly(settings: Sequence[Setting]) -> list[Setting]:
    indices = np.linspace(0, len(settings) - 1, min(_REPEATED_CLOCKS, len(settings))).astype(int).tolist()
    return [settings[index] for index in indices]


class _Keeper:
    """Stores measurements as they are made; those that follow each other within ``held_s`` seconds, together."""

    def __init__(self, recorder: Recorder, held_s: float) -> None:
        self._recorder, self._held_s = recorder, held_s
        self._held: list[Measurement] = []
        self._stored_s = -math.inf

    def keep(self, found: Measurement) -> None:
        """Store a measurement, at once unless another was stored just before."""
        self._held.append(found)
        if time.monotonic() - self._stored_s >= self._held_s:
            self.store()

    def store(self) -> None:
        """Store what is still held."""
        if self._held:
            held, self._held = self._held, []
            self._recorder.append(*held)
        self._stored_s = time.monotonic()


def run_points(
    device: Device,
    workload: WorkloadTasks,
    recorder: Recorder,
    points: Sequence[SweepPoint],
    *,
    options: PointOptions,
    progress: Progress,
    ends_s: float = math.inf,
    keep_alone: KeepAlone | None = None,
) -> SweepOutcome:
    """Measure points one after another and store them as they are made; those that the study already has are skipped.

    The GPU is warmed up at first and before baselines, and heated a little before each setting, to match its temperature
    at work.

    Args:
        device: to measure on.
        workload: the kernels, and the state to measure them in.
        recorder: of the study.
        points: to measure, in order.
        options: how.
        progress: informed of every point; the caller has begun it with their number.
        ends_s: the device's time after which no further point is begun.
        keep_alone: receives the measurements of kernels alone, where they are measured in context.

    Raises:
        StudyError: the study cannot be written; what was measured before is kept.
        DeviceError: the device no longer measures.
    """
    outcome = SweepOutcome()
    tasks, measure_at = workload.tasks, measurer(device, workload, options, keep_alone)
    todo = [point for point in points if recorder.done[tasks[point.kernel].name, point.setting] <= point.repeat]
    outcome.found = len(points) - len(todo)
    baselines: dict[int, Measurement] = {}
    warm = False
    together = is_virtual(device) and keep_alone is None  # real measurements, and what goes with kernels alone, go at once
    keeper = _Keeper(recorder, _HELD_S if together else 0.0)
    try:
        for setting, block in groupby(todo, key=lambda point: point.setting):
            here = list(block)
            if device.time.now_s() < ends_s:
                if setting.is_auto or not warm:
                    warm_up(device, tasks)
                else:
                    heat_s = HEATING * len(here) * (options.warm_up_s + options.window_s)
                    warm_up(device, tasks, at_least_s=heat_s, at_most_s=heat_s)
                warm = True
            for point in here:
                if device.time.now_s() >= ends_s:
                    outcome.out_of_time = True
                    return outcome
                task = tasks[point.kernel]
                try:
                    found = measure_at(point.kernel, setting)
                except (ClocksRefusedError, CannotRunError) as error:
                    if setting.is_auto and isinstance(error, ClocksRefusedError):
                        raise
                    reason = type(error).__name__
                    if isinstance(error, CannotRunError):
                        recorder.exclude(task.name, setting)
                    outcome.skipped[reason] = outcome.skipped.get(reason, 0) + 1
                    progress.say(f"'{task.name}' at {setting} cannot be measured: {error}")
                    progress.step(f"{task.name} at {setting}: not measured")
                    continue
                keeper.keep(found)
                outcome.measured += 1
                if setting.is_auto:
                    _watch(baselines, point.kernel, found, outcome)
                progress.step(f"{task.name} at {setting}")
    finally:
        try:
            keeper.store()
        finally:
            device.clocks.release()
    return outcome


def measure_sweep(
    device: Device,
    workload: WorkloadTasks,
    study: Study,
    settings: Sequence[Setting],
    *,
    options: PointOptions | None = None,
    progress: Progress | None = None,
    budget_s: float | None = None,
    rounds: int = BASELINE_ROUNDS,
    command: str | None = None,
) -> SweepOutcome:
    """Measure everything at auto and at every setting, into a study, in the workload's state.

    In context, kernels are also measured alone on the way, and that is stored too. Called again with the same arguments, it
    resumes an interrupted sweep. Clocks are given back to the driver however it ends.

    Args:
        device: to measure on.
        workload: what to measure.
        study: to keep the measurements in.
        settings: besides auto, in the order to take them.
        options: how to measure.
        progress: informed of every point.
        budget_s: device time after which no further point is begun.
        rounds: how often to measure everything where there are no settings besides auto.
        command: that resumes this, for the study to remember.

    Raises:
        BadInputError: no rounds; a state that the device cannot be measured in; the study is of another device, or the
            workload of other kernels.
        StudyError: the study cannot be written; what was measured before is kept.
        DeviceError: the device does not measure.
    """
    if workload.state == "natural":
        raise BadInputError("`state` natural: is measured at clocks that are not set: `clocks` natural")
    progress = progress or Silent()
    ends_s = math.inf if budget_s is None else device.time.now_s() + budget_s
    check_state(device, workload)
    points, impossible = measurable_points(device, workload, settings, rounds)
    intent = Intent("grid" if settings else "auto", tuple(settings), impossible, command=command)
    with ExitStack() as stack:
        recorder = stack.enter_context(recording(device, workload, study, intent))
        keep_alone = None
        if workload.state == "context":
            alone = stack.enter_context(recording(device, replace(workload, state="ssp"), study, intent))
            keep_alone = _keeping_alone(alone, recorder)
        done = sum(recorder.done[workload.tasks[point.kernel].name, point.setting] > point.repeat for point in points)
        progress.begin(len(points), done)
        if done < len(points) and not is_virtual(device):
            progress.say("warming up at the default clocks, until the temperature no longer rises")
        outcome = run_points(
            device, workload, recorder, points,
            options=options or PointOptions(), progress=progress, ends_s=ends_s, keep_alone=keep_alone,
        )  # fmt: skip
        if not outcome.out_of_time:
            recorder.finish()
            if workload.state == "context":
                alone.finish()
        return outcome


def measurable_points(
    device: Device, workload: WorkloadTasks, settings: Sequence[Setting], rounds: int
) -> tuple[list[SweepPoint], frozenset[Point]]:
    """All points of a sweep that the device can run, in the order to measure them; and those that it cannot.

    Args:
        device: it is neither set nor run.
        workload: the kernels, and the state to measure them in.
        settings: besides auto, in the order to take them.
        rounds: how often to measure everything where there are no settings besides auto.

    Raises:
        BadInputError: no rounds.
    """
    if rounds < 1:
        raise BadInputError(f"`rounds` {rounds}: must be at least 1")
    points = _points(workload, settings, rounds)
    possible = [point for point in points if can_measure(device, workload, point.kernel, point.setting)]
    impossible = {(workload.tasks[point.kernel].name, point.setting) for point in set(points).difference(possible)}
    return possible, frozenset(impossible)


def _points(workload: WorkloadTasks, settings: Sequence[Setting], rounds: int) -> list[SweepPoint]:
    kernels = hottest_first(workload.tasks)
    if workload.state == "sse":  # a profile repeats executions hundreds of times by itself
        return [SweepPoint(kernel, setting) for setting in (AUTO, *settings) for kernel in kernels]
    return _sweep_points(kernels, settings, rounds)


def _keeping_alone(alone: Recorder, in_context: Recorder) -> KeepAlone:
    """Stores kernels alone as often as they are measured in context; a separate sweep may have measured them already."""

    def keep(found: Measurement) -> None:
        key = found.kernel, found.setting
        if alone.done[key] <= in_context.done[key]:
            alone.append(found)

    return keep


def recording(device: Device, workload: WorkloadTasks, study: Study, intent: Intent) -> AbstractContextManager[Recorder]:
    """Keeps measurements of a device and their intent in a study; raises what :meth:`Study.recording` does."""
    identity = device.identity
    return study.recording(
        workload.kernels,
        workload=workload.key,
        device=identity.label,
        origin=identity.origin,
        source=f"sweep on {identity.name}",
        run=workload.run,
        steps={task.name: task.steps for task in workload.tasks},
        captured_on=workload.captured_on,
        intent=intent,
    )


def _watch(baselines: dict[int, Measurement], kernel: int, found: Measurement, outcome: SweepOutcome) -> None:
    """Compare a baseline with the first one of its kernel; the outcome gets those that differ."""
    first = baselines.setdefault(kernel, found)
    compared: tuple[tuple[Literal["time", "energy"], float, float, float], ...] = (
        ("time", first.time_s, found.time_s, first.time_se_s + found.time_se_s),
        ("energy", first.energy_j, found.energy_j, first.energy_se_j + found.energy_se_j),
    )
    for what, was, now, error in compared:
        if abs(now - was) > max(_DRIFT * was, _DRIFT_ERRORS * error):
            outcome.drifted.append(Drift(found.kernel, what, now / was - 1.0))
