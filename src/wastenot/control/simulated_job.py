"""A training job on simulated GPUs, run under a plan: what `apply` does on a device that has no program to run.

Virtual time passes as fast as it can be computed; in real time it is held back to the pace of the wall clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from wastenot.control.controller import Controller
from wastenot.control.driver import Driver, Subject
from wastenot.control.fitting import schedule_of
from wastenot.control.marker import ITERATION, Marker
from wastenot.control.slack import MARKED
from wastenot.control.status import Summary
from wastenot.core.errors import BadInputError
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.course import Course, Spread
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.meters.tasks import tasks_by_name, tasks_of
from wastenot.planning.plan import Plan
from wastenot.planning.schedule import Schedule
from wastenot.study.sweep import Kernel
from wastenot.workloads.build import build_workload
from wastenot.workloads.order import Ordered, loops

SEEN_S = 2e-4
"""How long after it was reached a marker is seen."""


@dataclass(frozen=True, slots=True)
class Programme:
    """An iteration to run: tasks, indices of them in order of execution, and where its markers are."""

    tasks: tuple[Task, ...]
    order: tuple[int, ...]
    markers: tuple[tuple[str, int], ...]


def programme_of(kernels: Sequence[Ordered], tasks: Sequence[Task]) -> Programme:
    """An iteration of kernels in order of execution, with the markers that hooks in a program would send.

    Args:
        kernels: as in a study.
        tasks: what each runs.
    """
    order: list[int] = []
    markers: dict[str, int] = {ITERATION: 0}
    turns: dict[str, int] = {}
    for loop in loops(kernels):
        first = kernels[loop.members[0]]
        if first.pass_name is not None:
            markers.setdefault(first.pass_name, len(order))
        for _ in range(loop.times):
            if first.pass_name is not None and first.block is not None:
                turn = turns.get(first.pass_name, 0)
                markers.setdefault(f"{first.pass_name}:{turn}", len(order))
                turns[first.pass_name] = turn + 1
            order += loop.members
    return Programme(tuple(tasks), tuple(order), tuple(markers.items()))


class Scheduled(Driver, Protocol):
    """A driver of a schedule, which names the markers that a job sends."""

    schedule: Schedule


D = TypeVar("D", bound=Scheduled)


def run_job(
    controller: D,
    programme: Programme,
    iterations: int,
    *,
    seed: int = 0,
    spread: Spread | None = None,
    course: Callable[..., Course] = Course,
    real_time: bool = False,
    watch: Callable[[D], bool] | None = None,
    watch_every_s: float = 1.0,
    meets: Mapping[str, int] | None = None,
) -> tuple[Summary, list[Course]]:
    """Run a job on the controller's simulated GPUs.

    Args:
        controller: whose GPUs are simulated ones in virtual time.
        programme: what an iteration runs, on every GPU.
        iterations: how many.
        seed: of how iterations differ.
        spread: how they differ.
        course: makes what a GPU runs; arguments as of :class:`Course`.
        real_time: hold virtual time back to the pace of the wall clock.
        watch: is called now and then by virtual time, such as to show the status; ends the job by returning ``True``.
        watch_every_s: how often.
        meets: markers at which GPUs wait for each other, and how many such markers one may be ahead there: none at an
            all-reduce, one where parameters are gathered a layer in advance. By default of several GPUs at the optimizer's,
            or where it has none at the begin of an iteration.

    Returns:
        What became of it, and the job of each GPU with what its iterations took.

    Raises:
        BadInputError: a GPU is not simulated, or there are no iterations.
    """
    if iterations < 1:
        raise BadInputError(f"`iterations` {iterations}: must be at least 1")
    spread = spread or Spread()
    wanted = {marker.name for marker in controller.schedule.markers}
    if len(controller.gpus) > 1:
        wanted |= MARKED
        meets = meets or {"optimizer" if "optimizer" in dict(programme.markers) else ITERATION: 0}
    meets = meets or {}
    markers = [each for each in programme.markers if each[0] in wanted or each[0] in meets]
    met = {place: meets[name] for place, (name, _) in enumerate(markers) if name in meets}
    jobs = [
        _Job(index, _simulated(gpu), programme, markers, partial(course, spread=spread, seed=(seed, index), meets=met))
        for index, gpu in enumerate(controller.gpus)
    ]
    if len(jobs) > 1:
        for job in jobs:
            job.device.engine.advance_all = partial(_advance, jobs)
    now_s, watched_s = jobs[0].device.engine.now_s, -math.inf
    began_s, began_wall_s = now_s, time.monotonic()
    stopped = False
    while not stopped and any(job.course.iteration < iterations for job in jobs):
        due_s = controller.due_s()
        until_s = min(math.inf if due_s is None else due_s, *(job.next_s() + SEEN_S for job in jobs))
        if real_time:
            time.sleep(max(until_s - began_s - (time.monotonic() - began_wall_s), 0.0))
        _advance(jobs, until_s)
        reached = [marker for job in jobs for marker in job.reached()]
        for marker in sorted(reached, key=lambda one: one.reached_s) if len(jobs) > 1 else reached:
            controller.mark(marker)
        now_s = max(job.device.engine.now_s for job in jobs)
        due_s = controller.due_s()
        if due_s is not None and due_s <= now_s:
            controller.act(now_s)
            now_s = max(job.device.engine.now_s for job in jobs)
        if watch is not None and now_s - watched_s >= watch_every_s:
            watched_s = now_s
            stopped = watch(controller)
    summary = controller.end(now_s, ended="stopped" if stopped else "job ended", exit_code=None if stopped else 0)
    for job in jobs:
        job.device.engine.advance_all = None
        job.device.engine.follow(None)
    return summary, [job.course for job in jobs]


class _Job:
    """The job of one GPU."""

    def __init__(
        self,
        index: int,
        device: SimulatedDevice,
        programme: Programme,
        markers: Sequence[tuple[str, int]],
        course: Callable[..., Course],
    ) -> None:
        self._markers = markers
        self._index, self.device = index, device
        places = [call for _, call in self._markers]
        self.course = course(device.engine.physics, programme.tasks, programme.order, places)
        self._began_s = device.engine.now_s
        device.engine.follow(self.course)

    def next_s(self) -> float:
        """When it will reach its next marker, if nothing changes."""
        engine = self.device.engine
        return engine.now_s + self.course.next_marker_in_s(engine.setting, engine.temperature_c)

    def reached(self) -> list[Marker]:
        """The markers that were reached since the last call."""
        reached, self.course.reached = self.course.reached, []
        began_s, names, gpu = self._began_s, self._markers, self._index
        return [Marker(names[one.place][0], one.iteration, began_s + one.after_s, gpu) for one in reached]


def _advance(jobs: Sequence[_Job], until_s: float) -> None:
    """Run the GPUs of a job until a moment, from one place at which they wait for each other to the next."""
    engines = [job.device.engine for job in jobs]
    now_s = engines[0].now_s
    until_s = max(until_s, now_s) + 1e-6
    if len(jobs) == 1:
        engines[0].advance(until_s - now_s)
        return
    while now_s < until_s:
        all_arrived = min(job.course.arrived for job in jobs)
        for job in jobs:
            job.course.all_arrived = all_arrived
        next_s = min((job.next_s() for job in jobs if job.course.meets_next), default=math.inf) + 1e-6
        now_s = max(min(until_s, next_s), now_s)
        for engine in engines:
            engine.advance_alone(max(now_s - engine.now_s, 0.0))


def _simulated(device: object) -> SimulatedDevice:
    if not isinstance(device, SimulatedDevice) or device.engine.on_wall_time:
        raise BadInputError("`device`: a simulated job runs on simulated GPUs in virtual time, such as sim:rtx-3080-ti")
    return device


def programme_of_plan(plan: Plan) -> Programme:
    """What a plan was made for, as a simulated GPU runs it: the model's kernels, or those that it knows by name."""
    run = plan.run
    kernels = tuple(Kernel(row.kernel, row.count, row.pass_name, row.block) for row in plan.assignments)
    named = tasks_by_name(plan.measured, kernels)
    if run is None:
        return programme_of(named.kernels, named.tasks)
    modelled = tasks_of(build_workload(run.model, run.shape), plan.measured_granularity, plan.state)
    known = dict(zip(modelled.kernels, modelled.tasks, strict=True))
    tasks = [known.get(kernel, task) for kernel, task in zip(kernels, named.tasks, strict=True)]
    return programme_of(kernels, tasks)


def run_simulated(
    plan: Plan,
    device: SimulatedDevice | Sequence[SimulatedDevice],
    iterations: int,
    *,
    seed: int = 0,
    path: str = "",
    dry_run: bool = False,
    real_time: bool = False,
    watch: Callable[[Controller], bool] | None = None,
    watch_every_s: float = 1.0,
) -> Summary:
    """Run the workload of a plan on simulated GPUs, under the plan.

    Args:
        plan: with a schedule.
        device: or several, which run alike and wait for each other in each iteration.
        iterations: how many.
        seed: of how iterations differ, and of the order of comparisons.
        path: of the plan, as it is to be named.
        dry_run: change no clocks.
        real_time: hold virtual time back to the pace of the wall clock.
        watch: is called now and then by virtual time, such as to show the status; ends the job by returning ``True``.
        watch_every_s: how often.

    Raises:
        BadInputError: the plan has no schedule, or a GPU is not a simulated one in virtual time.
        CannotRunError: the GPU does not know the workload's kernels.
    """
    gpus = [_simulated(device)] if isinstance(device, SimulatedDevice) else [_simulated(each) for each in device]
    schedule = schedule_of(plan, path or "the plan")
    subject = Subject(path or plan.workload, plan.digest, plan.workload, "simulated")
    controller = Controller(schedule, gpus, subject, now_s=gpus[0].engine.now_s, seed=seed, dry_run=dry_run)
    programme = programme_of_plan(plan)
    summary, _ = run_job(
        controller, programme, iterations, seed=seed, real_time=real_time, watch=watch, watch_every_s=watch_every_s
    )
    return summary
