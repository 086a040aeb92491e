"""What there is to measure and how long that takes, worked out before it begins.

    point      warm-up, then a window, then a moment to start the next kernel
    setting    before its points the device is heated a little, as measuring will
    auto       before its points the device is warmed up until its temperature is steady

Nothing is measured for it and nothing is set. Only how long a simulated device, whose time is virtual, makes one wait is
tried out, on a copy of it.
"""

from __future__ import annotations

import copy
import math
import time as wall
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from wastenot.core.errors import WastenotError
from wastenot.core.origin import Origin
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import is_virtual
from wastenot.devices.protocol import Device
from wastenot.meters.tasks import WorkloadTasks
from wastenot.sweeping.measure import HEATING, SweepPoint, measurable_points
from wastenot.sweeping.point import PointOptions
from wastenot.sweeping.states import LEAST_TURNS, MOST_TURNS, PROFILES, SETTLES_S, measurer, tasks_before
from wastenot.workloads.identity import Granularity

EstimateKind = Literal["grid", "auto", "search", "natural", "again"]
"""What is measured: a grid of settings, the default clocks alone, at most some points of a grid, natural clocks, or a plan
again."""

_START_S = 0.35  # between points: starting a kernel, and waiting for a step of the energy counter
COLD_S = 110.0  # to warm up a cold card, until its temperature no longer rises
WARM_S = 70.0  # to warm it up again after other clocks
_LEAST_WINDOW_S = 1.0
_TURNS = 6.5  # of loops in context, between the least and the most, as noise asks for
_PROFILE_SHARE = 0.65  # of the time that a profile may take, that it takes
_TRIED = 5  # points tried on a copy of a simulated device, at most
_AT_NATURAL_CLOCKS = 50.0  # times as long to compute as a point: a kernel at natural clocks
_STORE_S = 0.0005  # to store a point, which a trial does not do


@dataclass(frozen=True, slots=True)
class Estimate:
    """What there is to measure, and how long that takes.

    Attributes:
        kind: see :data:`EstimateKind`.
        workload: what is measured.
        device: that measures.
        origin: of its numbers.
        granularity: what is measured as a unit.
        kernels: how many of these; kernels that are the same count once at natural clocks.
        settings: pairs of clocks besides the default clocks.
        points: measurements altogether, repeats and those at the default clocks included.
        found: of these, measured before.
        warm_up_s, window_s: of each.
        device_s: time that the others take on the device.
        least_device_s, most_device_s: range of that time, where it depends on what is measured.
        virtual: whether that time is virtual.
        wait_s: how long it really takes: ``device_s``, or for virtual time what a trial suggests; ``None`` where unknown.
        budget_s: device time after which no further point is begun, if any.
        notes: what else a person should know before, a line each.
    """

    kind: EstimateKind
    workload: str
    device: str
    origin: Origin
    granularity: Granularity
    kernels: int
    settings: int
    points: int
    found: int
    warm_up_s: float
    window_s: float
    device_s: float
    least_device_s: float
    most_device_s: float
    virtual: bool
    wait_s: float | None
    budget_s: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def todo(self) -> int:
        """Points that are left to measure."""
        return self.points - self.found


Announce = Callable[[Estimate], None]
"""Is told what there is to measure, before it begins."""


def estimate_sweep(
    device: Device,
    workload: WorkloadTasks,
    settings: Sequence[Setting],
    done: Mapping[tuple[str, Setting], int],
    *,
    options: PointOptions | None = None,
    rounds: int,
    budget_s: float | None = None,
) -> Estimate:
    """What :func:`~wastenot.sweeping.measure.measure_sweep` measures with the same arguments, and how long that takes.

    Args:
        device: to measure on; it is neither set nor run.
        workload: what to measure.
        settings: besides auto, in the order to take them.
        done: how often each kernel was measured at each setting before.
        options: how to measure.
        rounds: how often to measure everything where there are no settings besides auto.
        budget_s: device time after which no further point is begun.
    """
    points, _ = measurable_points(device, workload, settings, rounds)
    names = [task.name for task in workload.tasks]
    todo = [point for point in points if done.get((names[point.kernel], point.setting), 0) <= point.repeat]
    span = points_s(workload, todo, options or PointOptions(), device=device)
    return finished_estimate(
        device, workload, "grid" if settings else "auto", len(settings), len(points), len(points) - len(todo), span,
        options or PointOptions(), budget_s,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds on a device: what to expect, and the least and the most that it may be."""

    expected_s: float = 0.0
    least_s: float = 0.0
    most_s: float = 0.0

    @classmethod
    def of(cls, seconds: float) -> Span:
        """Exactly so long."""
        return cls(seconds, seconds, seconds)

    def plus(self, other: Span, times: float = 1.0) -> Span:
        """Followed by another one a number of times."""
        return Span(
            self.expected_s + times * other.expected_s,
            self.least_s + times * other.least_s,
            self.most_s + times * other.most_s,
        )


def finished_estimate(
    device: Device, workload: WorkloadTasks, kind: EstimateKind, settings: int, points: int, found: int, span: Span,
    options: PointOptions, budget_s: float | None = None,
) -> Estimate:  # fmt: skip
    """The estimate of points whose time on the device is known."""
    virtual, todo, refusal = is_virtual(device), points - found, device.clocks.refusal()
    spent_s = span.expected_s if budget_s is None else min(span.expected_s, budget_s)
    wait_s: float | None = spent_s
    if virtual and todo:
        tried = try_points(device, workload, options)
        each = _AT_NATURAL_CLOCKS if kind == "natural" else 1.0
        wait_s = None if tried is None else each * tried.real_s * todo * spent_s / max(span.expected_s, 1e-9)
    return Estimate(
        kind=kind,
        workload=str(workload.key),
        device=device.identity.label,
        origin=device.identity.origin,
        granularity=workload.granularity,
        kernels=len(workload.tasks),
        settings=settings,
        points=points,
        found=found,
        warm_up_s=options.warm_up_s,
        window_s=options.window_s,
        device_s=span.expected_s,
        least_device_s=span.least_s,
        most_device_s=span.most_s,
        virtual=virtual,
        wait_s=wait_s if todo else 0.0,
        budget_s=budget_s,
        notes=() if settings == 0 or refusal is None else (f"this would be refused: {refusal}",),
    )


def points_s(workload: WorkloadTasks, points: Sequence[SweepPoint], options: PointOptions, *, device: Device) -> Span:
    """Device time of points that are measured one after another.

    Args:
        workload: their kernels, and the state to measure them in.
        points: in order.
        options: how each is measured.
        device: that measures. How long a call of a whole pass takes is tried out where its time is virtual.
    """
    before = tasks_before(workload) if workload.state == "context" else workload.tasks
    tried: dict[bool, Tried | None] = {}
    if points and is_virtual(device) and not all(task.is_kernel for task in workload.tasks):
        # A call may outlast the window, and then the window lasts longer: the more so at low clocks.
        others = [point.setting for point in points if not point.setting.is_auto]
        tried[True] = try_points(device, workload, options)
        tried[False] = try_points(device, workload, options, others[len(others) // 2]) if others else None
    total = Span()
    first = True
    for setting, block in groupby(points, key=lambda point: point.setting):
        here = list(block)
        heat_s = HEATING * len(here) * (options.warm_up_s + options.window_s)
        if setting.is_auto or first:
            heat_s = COLD_S if first else WARM_S
        first = False
        total = total.plus(Span.of(heat_s))
        for point in here:
            follows = before[point.kernel].name != workload.tasks[point.kernel].name
            each = point_s(workload, options, follows_another=follows)
            seen = tried.get(setting.is_auto)
            total = total.plus(each if seen is None else Span.of(max(each.expected_s, seen.device_s)))
    return total


def point_s(workload: WorkloadTasks, options: PointOptions, *, follows_another: bool = False) -> Span:
    """Device time of one point in the state of a workload.

    Args:
        workload: that it is of.
        options: how it is measured.
        follows_another: whether, in context, another kernel runs before it.
    """
    least_window_s = min(options.window_s, _LEAST_WINDOW_S) if options.relative_error > 0 else options.window_s
    if workload.state == "sse":
        most_s = PROFILES * (options.warm_up_s + options.window_s)
        return Span(_PROFILE_SHARE * most_s, 0.0, most_s)
    if workload.state == "context" and follows_another:
        settles_s = min(options.warm_up_s, SETTLES_S) + _START_S
        # The few that take more turns than these come with many that take the least.
        turn_s = 3.0 * (settles_s + options.window_s / LEAST_TURNS)
        return Span(*(options.warm_up_s + turns * turn_s for turns in (_TURNS, LEAST_TURNS, MOST_TURNS)))
    fixed_s = options.warm_up_s + _START_S
    whole_s = fixed_s + options.window_s
    return Span(whole_s, fixed_s + least_window_s, whole_s)


def heated_point_s(workload: WorkloadTasks, options: PointOptions) -> Span:
    """Device time of one point with its part of the time to heat the device before it."""
    heat_s = HEATING * (options.warm_up_s + options.window_s)
    return point_s(workload, options).plus(Span.of(heat_s))


@dataclass(frozen=True, slots=True)
class Tried:
    """A point as tried on a copy of a simulated device: its virtual time, and how long it really took, on average."""

    device_s: float
    real_s: float


def try_points(device: Device, workload: WorkloadTasks, options: PointOptions, setting: Setting = AUTO) -> Tried | None:
    """Measure a few points on a copy of a simulated device; ``None`` where none can be measured."""
    tasks = workload.tasks
    number = min(_TRIED, len(tasks))
    chosen = [index * (len(tasks) - 1) // max(number - 1, 1) for index in range(number)]
    trial = copy.deepcopy(device)
    measure_at = measurer(trial, workload, options)
    device_s: list[float] = []
    real_s: list[float] = []
    for index in chosen:
        before_s, before_real_s = trial.time.now_s(), wall.perf_counter()
        try:
            measure_at(index, setting)
        except WastenotError:
            continue
        device_s.append(trial.time.now_s() - before_s)
        real_s.append(wall.perf_counter() - before_real_s)
    usual_s = real_s[1:] or real_s  # the first one also loads what the others find loaded
    return Tried(math.fsum(device_s) / len(device_s), math.fsum(usual_s) / len(usual_s) + _STORE_S) if device_s else None
