"""A sweep at natural clocks: kernels run in the wake of heavy work and beside it, and the GPU changes its clock by itself.

for each kernel:  prepare [kernel, heavy product] ─▶ choose phases ─▶ run ─▶ store ─▶ enough? ─▶ curve and rows
                                                         ▲                      │ no
                                                         └──────────────────────┘
in the end:       estimate all curves together, since kernels tell about each other, and the rows again

Nothing is set. Every run is stored before the next begins, so an interrupted sweep resumes with the kernel it was at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.errors import BadInputError, CannotRunError
from wastenot.core.progress import Progress, Silent
from wastenot.core.wording import counted
from wastenot.devices.protocol import Device, Task
from wastenot.devices.timeline import PreparedTimeline, Subject, TimelineRecorder
from wastenot.kernels.natural.estimate import estimate
from wastenot.kernels.natural.programmes import next_programme
from wastenot.kernels.natural.seen import Recorded
from wastenot.kernels.natural.storage import packed_curve, packed_timeline, rows_of_curve, unpacked_timeline
from wastenot.meters.tasks import WorkloadTasks
from wastenot.study.coverage import Intent
from wastenot.study.natural_log import keep_curve, keep_timeline
from wastenot.study.recorder import Recorder
from wastenot.study.store import Study
from wastenot.sweeping.estimate import Estimate, Span, finished_estimate
from wastenot.sweeping.grid import AtNatural
from wastenot.sweeping.measure import SweepOutcome, recording
from wastenot.sweeping.point import PointOptions
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.primitives import primitive

HEAVY = tuple(f"gemm:{edge}" for edge in (8192, 4096, 2048))
"""Square bf16 products that bring the regulator down, the heaviest first: smaller where memory or time is short."""


_LEAST_EACH_S = 2.0  # device time for a kernel, however little is left
_USUAL_SHARE = 0.5  # of the time that a kernel may take, that it takes: nothing is missing any more before
_PREPARE_S, _PREPARES = 1.0, 12  # of a kernel, to begin with; and over how many of them its mean is taken
_LONGEST_CALL_S = 0.025  # of the heavy product; a longer one would make coarse bursts
_MOVED = 0.02  # relative range of clocks from which on a card counts as changing its clock


def natural_sweep(
    device: Device,
    workload: WorkloadTasks,
    study: Study,
    *,
    seconds_each: float = AtNatural().seconds_each,
    budget_s: float | None = None,
    progress: Progress | None = None,
    command: str | None = None,
) -> SweepOutcome:
    """Measure every kernel at clocks that the device goes through by itself, into a study; resumes an interrupted sweep.

    Args:
        device: to measure on; nothing of it is set.
        workload: its kernels.
        study: to keep timelines, curves and rows in.
        seconds_each: device time that a kernel may take at most.
        budget_s: device time after which no further run is begun; kernels take less each so that all are reached.
        progress: informed of every kernel.
        command: that resumes this, for the study to remember.

    Raises:
        BadInputError: kernels are measured together; the device cannot count cycles; the study is of another device.
        MissingExtraError: what runs kernels is not installed.
        StudyError: the study cannot be written; what was measured before is kept.
        DeviceError: the device does not measure; what was measured before is kept.
    """
    workload = _at_natural_clocks(workload, seconds_each)
    progress = progress or Silent()
    timelines = device.timelines()
    ends_s = math.inf if budget_s is None else device.time.now_s() + budget_s
    outcome, clocks = SweepOutcome(), _ClockRange()
    with recording(device, workload, study, Intent("natural", command=command)) as store:
        seen = seen_of(study, workload)
        for runs in seen.values():
            for run in runs:
                clocks.add(run)
        progress.begin(len(workload.tasks))
        twins, fresh = twins_of(workload.tasks), set[str]()
        prepare_s = _PREPARE_S
        for number, task in enumerate(workload.tasks):
            if twins[task.name] != task.name:  # measured under the name of its twin
                outcome.measured += twins[task.name] in fresh
                outcome.found += twins[task.name] not in fresh
                progress.step(task.name)
                continue
            runs = seen.setdefault(task.name, [])
            before, began_s = len(runs), device.time.now_s()
            left = sum(twins[other.name] == other.name for other in workload.tasks[number:])
            seconds = min(seconds_each, max((ends_s - began_s) / left - prepare_s, _LEAST_EACH_S))
            measure = _Kernel(device, timelines, store, task, runs, seconds, ends_s, clocks)
            try:
                complete = measure.run()
            except CannotRunError as error:
                outcome.skipped["CannotRunError"] = outcome.skipped.get("CannotRunError", 0) + 1
                progress.say(f"'{task.name}' cannot be measured: {error}")
                complete = True
            if len(runs) > before:  # known at once, whatever happens to the others
                fresh.add(task.name)
                keep_curves(store, device, {task.name: runs}, twins, together=False)
                spent_s = device.time.now_s() - began_s - math.fsum(run.seconds for run in runs[before:])
                prepare_s += (max(spent_s, 0.0) - prepare_s) / min(number + 2, _PREPARES)
            outcome.out_of_time |= not complete
            outcome.measured += len(runs) > before
            outcome.found += bool(runs) and len(runs) == before
            progress.step(task.name)
        kept = study.natural_curves(workload.name, workload.granularity)
        if not all(kept[name].header["together"] for name, runs in seen.items() if runs and name in kept):
            keep_curves(store, device, seen, twins, together=True, progress=progress)
        outcome.notes += clocks.notes()
        if not outcome.out_of_time:
            store.finish()
    return outcome


def estimate_natural(
    device: Device, workload: WorkloadTasks, study: Study, *, seconds_each: float, budget_s: float | None = None
) -> Estimate:
    """How many kernels :func:`natural_sweep` measures, and how long it takes at most.

    A kernel takes less where nothing is missing any more before its time is up.

    Args:
        device: to measure on; it is not run.
        workload: its kernels.
        study: that timelines are kept in.
        seconds_each: device time that a kernel may take at most.
        budget_s: device time for all of them.

    Raises:
        BadInputError: kernels are measured together; the study is of another device.
        StudyError: it cannot be read.
    """
    workload = _at_natural_clocks(workload, seconds_each)
    twins = twins_of(workload.tasks)
    seen = seen_of(study, workload) if study.settings_done(workload.key, device.identity.label) else {}
    left_s = [_left_s(seen.get(name, ()), seconds_each) for name, measured in twins.items() if name == measured]
    begun = [seconds for seconds in left_s if seconds > _LEAST_EACH_S]
    prepare_s = _PREPARE_S * len(begun)
    span = Span(prepare_s + _USUAL_SHARE * math.fsum(begun), prepare_s, prepare_s + math.fsum(begun))
    return finished_estimate(
        device, workload, "natural", 0, len(left_s), len(left_s) - len(begun), span, PointOptions(), budget_s
    )


def _left_s(runs: Sequence[Recorded], seconds: float) -> float:
    """How much longer a kernel may be measured; 0 where nothing is missing any more."""
    left_s = max(seconds - math.fsum(run.seconds for run in runs), 0.0)
    return 0.0 if runs and not next_programme(runs, runs[-1].call_s, left_s) else left_s


def _at_natural_clocks(workload: WorkloadTasks, seconds_each: float) -> WorkloadTasks:
    """A workload to be measured at natural clocks, if it can be."""
    if workload.granularity != "kernel":
        raise BadInputError("`granularity`: natural clocks are those of single kernels; use kernel")
    if not 0.0 < seconds_each < math.inf:
        raise BadInputError(f"`seconds_each` {seconds_each:g}: must be a number of seconds above 0, such as 18")
    return replace(workload, state="natural")


def keep_curves(
    store: Recorder,
    device: Device,
    seen: Mapping[str, Sequence[Recorded]],
    twins: Mapping[str, str],
    *,
    together: bool,
    progress: Progress | None = None,
) -> None:
    """Estimate curves from what was seen, and store them with their rows.

    Args:
        store: of the study.
        device: that measured.
        seen: runs of kernels, by their names.
        twins: for each kernel the name that it was measured under, see :func:`twins_of`.
        together: whether these are all runs there are: what kernels tell about each other makes curves better.
        progress: informed of what a person should know.

    Raises:
        StudyError: the study cannot be written.
    """
    memory_mhz = device.sensors.clocks().memory_mhz
    notes: dict[str, list[str]] = {}
    for curve in estimate([run for runs in seen.values() for run in runs]).curves:
        own = seen[curve.kernel]
        temperatures = [each.timeline.temperature_c for each in own if each.timeline.temperature_c is not None]
        celsius = float(np.mean(temperatures)) if temperatures else None
        seconds = math.fsum(each.seconds for each in own)
        for name in (name for name, measured in twins.items() if measured == curve.kernel):
            shared = () if name == curve.kernel else (f"the same kernel as '{curve.kernel}', measured once for both",)
            same = replace(curve, kernel=name, notes=(*curve.notes, *shared))
            took_s = seconds if name == curve.kernel else 0.0
            rows = rows_of_curve(same, took_s, own[-1].how, celsius, memory_mhz)
            keep_curve(store, name, rows, packed_curve(same, together=together, seconds=took_s))
        for note in curve.notes:
            notes.setdefault(note, []).append(curve.kernel)
    progress = progress or Silent()
    for note, kernels in notes.items():
        others = "" if len(kernels) == 1 else f" and {counted(len(kernels) - 1, 'other kernel')}"
        progress.say(f"'{kernels[0]}'{others}: {note}")


def twins_of(tasks: Sequence[Task]) -> dict[str, str]:
    """For each kernel the name of the first that runs the same operation on the same shapes, as in two norms of a layer.

    Names tell them apart by a number alone: which operation runs follows from the rest of the name, too.
    """
    first: dict[object, str] = {}
    found = {}
    for task in tasks:
        kernel = task.steps[0][0]
        what = (kernel.op, kernel.shape, kernel.flops, kernel.bytes_read, kernel.bytes_written, kernel.element_bytes)
        same = (*what, kernel.call, re.sub(r"\d+", "", kernel.name)) if len(task.steps) == 1 else task.name
        found[task.name] = first.setdefault(same, task.name)
    return found


def seen_of(study: Study, workload: WorkloadTasks) -> dict[str, list[Recorded]]:
    """The runs that a study holds of each kernel."""
    found: dict[str, list[Recorded]] = {}
    for kept in study.timelines(workload.name, granularity=workload.granularity):
        found.setdefault(kept.kernel, []).append(unpacked_timeline(kept.content))
    return found


class _ClockRange:
    """The clocks that the device went through in a sweep, and whether somebody else used it."""

    def __init__(self) -> None:
        self._low_mhz, self._high_mhz, self._most_w, self.shared = math.inf, 0.0, 0.0, False

    def add(self, seen: Recorded) -> None:
        clocks = seen.timeline.core_mhz
        if len(clocks):
            self._low_mhz = min(self._low_mhz, float(np.quantile(clocks, 0.01)))
            self._high_mhz = max(self._high_mhz, float(np.quantile(clocks, 0.99)))
        power = next(iter(seen.timeline.readings.values())).power_w
        self._most_w = max(self._most_w, float(power.max(initial=0.0)))
        self.shared |= seen.timeline.shared

    def notes(self) -> list[str]:
        notes = []
        if 0.0 < self._high_mhz < self._low_mhz * (1.0 + _MOVED):
            notes.append(
                f"the card never throttled: it stayed at {self._high_mhz:.0f} MHz while it drew up to {self._most_w:.0f} W, "
                "so kernels are known only at that clock; it would take a load that reaches the power limit (nvidia-smi -q "
                "-d POWER)"
            )
        if self.shared:
            notes.append(
                "another process used the GPU meanwhile, so the times and powers include it; measure again on a free GPU"
            )
        return notes


@dataclass(frozen=True, slots=True)
class _Kernel:
    """Measures one kernel: runs programmes until nothing is missing or its time is up."""

    device: Device
    timelines: TimelineRecorder
    store: Recorder
    task: Task
    seen: list[Recorded]
    seconds: float
    ends_s: float
    clocks: _ClockRange

    def run(self) -> bool:
        """Measure what is missing, added to ``seen``; returns whether nothing is missing any more.

        Raises:
            CannotRunError: the kernel cannot be run.
        """
        if self.seen and not next_programme(self.seen, self.seen[-1].call_s, self._left_s):
            return True
        if self.device.time.now_s() >= self.ends_s:
            return False
        with self._prepared() as (subjects, prepared):
            while phases := next_programme(self.seen, prepared.call_s, self._left_s):
                if self.device.time.now_s() >= self.ends_s:
                    return False
                timeline = prepared.run(phases)
                names = tuple((subject.kernel.name, subject.data) for subject in subjects)
                known = self.timelines.channels, self.timelines.stamps, prepared.how
                run = Recorded(timeline, names, tuple(prepared.call_s), *known)
                keep_timeline(self.store, self.task.name, packed_timeline(run))
                self.seen.append(run)
                self.clocks.add(run)
        return True

    @property
    def _left_s(self) -> float:
        return self.seconds - math.fsum(run.seconds for run in self.seen)

    @contextmanager
    def _prepared(self) -> Iterator[tuple[tuple[Subject, ...], PreparedTimeline]]:
        """The kernel, and the heaviest product that there is memory and time for.

        Raises:
            CannotRunError: the kernel cannot be run.
        """
        kernel = kernel_of(self.task)
        why: CannotRunError | None = None
        for name in HEAVY:
            subjects = (Subject(kernel), Subject(primitive(name)[0]))
            try:
                with self.timelines.prepare(subjects) as prepared:
                    if prepared.call_s[1] <= _LONGEST_CALL_S or name == HEAVY[-1]:
                        yield subjects, prepared
                        return
            except CannotRunError as error:
                why = why or error
        assert why is not None
        raise why


def kernel_of(task: Task) -> KernelSpec:
    """The kernel that a task runs.

    Raises:
        CannotRunError: the task is of several kernels, which have no clock of their own.
    """
    if len(task.steps) != 1:
        raise CannotRunError(
            f"{task.name}: is {counted(len(task.steps), 'kernel')}; natural clocks are those of single kernels"
        )
    return task.steps[0][0]
