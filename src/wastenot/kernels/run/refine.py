"""Measure again what a plan relies on: the finalists of every kernel and the clocks around them (paper, §9).

On the card that was swept this takes the luck out of the plan; on another card of the same model it finds that card's own
best clocks without a full sweep.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.core.progress import Progress, Silent
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.meters.tasks import WorkloadTasks
from wastenot.planning.plan import Plan
from wastenot.planning.planner import Planner
from wastenot.study.coverage import Intent
from wastenot.study.store import Study
from wastenot.study.sweep import Sweep
from wastenot.sweeping.estimate import Announce, finished_estimate, points_s
from wastenot.sweeping.measure import SweepOutcome, SweepPoint, recording, run_points
from wastenot.sweeping.point import PointOptions


@dataclass(frozen=True, slots=True)
class Finalists:
    """Which settings of each kernel are measured again, and how often.

    Attributes:
        each: settings of each kernel: the plan's, and those closest to it.
        around_mhz: also core clocks this close to the plan's, the memory clocks next to it, and for every kernel those of
            the plan's schedule and core clocks this close to them; 0 for none.
        repeats: measurements of each.

    Raises:
        BadInputError: a number makes no sense.
    """

    each: int = 3
    around_mhz: float = 0.0
    repeats: int = 3

    def __post_init__(self) -> None:
        if self.each < 1:
            raise BadInputError(f"`finalists` {self.each}: must be at least 1")
        if not 0.0 <= self.around_mhz < math.inf:
            raise BadInputError(f"`around_mhz` {self.around_mhz}: must be a number of MHz, 0 for none")

    def of(self, sweep: Sweep, plan: Plan, device: Device) -> dict[str, tuple[Setting, ...]]:
        """The settings, by kernel.

        Args:
            sweep: the plan's.
            plan: of granularity kernel.
            device: that they are to be measured on.
        """
        found = finalists(sweep, plan, self.each)
        if self.around_mhz:
            clocks = device.clocks.supported_clocks()
            scheduled = scheduled_settings(plan, clocks, self.around_mhz)
            for row in plan.assignments:
                near = around(row.setting, clocks, self.around_mhz)
                found[row.kernel] = tuple(dict.fromkeys((*found[row.kernel], *near, *scheduled)))
        return found


def refine(
    device: Device,
    units: WorkloadTasks,
    study: Study,
    candidates: Mapping[str, Sequence[Setting]],
    *,
    repeats: int = 3,
    options: PointOptions | None = None,
    progress: Progress | None = None,
    budget_s: float | None = None,
    command: str | None = None,
    announce: Announce | None = None,
) -> SweepOutcome:
    """Measure candidates and auto several times more, interleaved, so that drift affects all of them equally.

    Args:
        device: to measure on.
        units: what to measure.
        study: to keep the measurements in; of the same card, or a new one for another card.
        candidates: settings of each kernel besides auto.
        repeats: how often to measure each.
        options: how to measure.
        progress: is shown each point.
        budget_s: device time after which no further point is started.
        command: that resumes this, for the study to remember.
        announce: receives how many points there are and how long they take, before they are measured.

    Raises:
        BadInputError: no repeats, measurements at natural clocks, or a kernel without a name among the candidates.
        StudyError: the study cannot be written; what was measured before is kept.
        DeviceError: the device does not measure.
    """
    if repeats < 1:
        raise BadInputError(f"`repeats` {repeats}: must be at least 1")
    if units.state == "natural":
        raise BadInputError(
            "`state` natural: these rows are at clocks that were not set, and rows at set clocks must not be mixed with "
            "them; refine measurements at set clocks: `state` ssp"
        )
    progress, options = progress or Silent(), options or PointOptions()
    ends_s = math.inf if budget_s is None else device.time.now_s() + budget_s
    pairs = [
        (kernel, setting)
        for kernel, task in enumerate(units.tasks)
        for setting in dict.fromkeys((AUTO, *candidates.get(task.name, ())))
        if device.launcher.can_run(task, setting)
    ]
    pairs.sort(key=lambda pair: (-(pair[1].memory_mhz or math.inf), -(pair[1].core_mhz or math.inf), pair[0]))
    settings = tuple(dict.fromkeys(setting for _, setting in pairs if not setting.is_auto))
    others = {(kernel, setting) for kernel in range(len(units.tasks)) for setting in settings}.difference(pairs)
    excluded = frozenset((units.tasks[kernel].name, setting) for kernel, setting in others)
    intent = Intent("refine", settings, excluded, command=command)
    with recording(device, units, study, intent) as recorder:
        before = {pair: recorder.done[units.tasks[pair[0]].name, pair[1]] for pair in pairs}
        points = [SweepPoint(*pair, before[pair] + repeat) for repeat in range(repeats) for pair in pairs]
        if announce is not None:
            span = points_s(units, points, options, device=device)
            number = len(points)
            announce(finished_estimate(device, units, "again", len(settings), number, 0, span, options, budget_s))
        progress.begin(len(points))
        outcome = run_points(device, units, recorder, points, options=options, progress=progress, ends_s=ends_s)
        if not outcome.out_of_time:
            recorder.finish()
        return outcome


def finalists(sweep: Sweep, plan: Plan, per_kernel: int = 3) -> dict[str, tuple[Setting, ...]]:
    """The plan's setting of each kernel and those closest to it, by energy + price · time at the plan's price of time.

    Args:
        sweep: the plan's.
        plan: of granularity kernel.
        per_kernel: how many of each kernel.
    """
    planner = Planner(sweep, "kernel")
    costs = planner.costs
    price = planner.measured.frontier.price_of_time(plan.predicted.time_s)
    chosen = {}
    for index, row in enumerate(plan.assignments):
        rows = np.arange(costs.start[index], costs.start[index + 1])
        value = costs.energy_j[rows] + price * costs.time_s[rows]
        best = [costs.setting(int(rows[rank])) for rank in np.argsort(value, kind="stable")[:per_kernel]]
        chosen[row.kernel] = tuple(dict.fromkeys((row.setting, *best)))
    return chosen


def scheduled_settings(plan: Plan, states: Mapping[float, Sequence[float]], step_mhz: float) -> tuple[Setting, ...]:
    """The settings of a plan's schedule, and the core clocks a step above and below them; auto is as the highest clocks.

    A stretch of a schedule lasts for many kernels, which all have to be measured at its setting.

    Args:
        plan: with its schedule, or nothing is scheduled.
        states: core clocks that the device has with each memory clock.
        step_mhz: distance in core clock; the nearest available clock is taken.
    """
    if plan.schedule is None or not states:
        return ()
    highest = Setting(max(states[max(states)]), max(states))
    used = [highest if each.setting.is_auto else each.setting for each in plan.schedule.rungs[0].segments]
    near = [other for each in used for other in around(each, states, step_mhz) if other.memory_mhz == each.memory_mhz]
    return tuple(dict.fromkeys(near))


def around(setting: Setting, states: Mapping[float, Sequence[float]], step_mhz: float) -> tuple[Setting, ...]:
    """A setting, the core clocks a step above and below it, and the same core clock at the memory clocks next to it.

    Args:
        setting: to look around; auto has nothing around it.
        states: core clocks that the device has with each memory clock.
        step_mhz: distance in core clock; the nearest available clock is taken.
    """
    if setting.core_mhz is None or setting.memory_mhz is None or setting.memory_mhz not in states:
        return (setting,)
    core, memory = setting.core_mhz, setting.memory_mhz
    available = states[memory]
    near = [min(available, key=lambda clock: abs(clock - wanted)) for wanted in (core - step_mhz, core + step_mhz)]
    memories = sorted(states)
    index = memories.index(memory)
    beside = [other for other in memories[max(index - 1, 0) : index + 2] if core in states[other]]
    nearby = [setting, *(Setting(clock, memory, setting.power_limit_w) for clock in near)]
    nearby += [Setting(core, other, setting.power_limit_w) for other in beside]
    return tuple(dict.fromkeys(nearby))
