"""Guards and proves a pipeline's plan as any other: its ranks run the plan or the default clocks, as a controller asks.

All ranks of a process change at the begin of the same iteration of its first one. Where other processes control the other
ranks, all change at iterations of the same number, and guard each for itself: an iteration is as long on all of them.
Stretches and blocks are those of :mod:`wastenot.control.blocks`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wastenot.control.controller import Controller
from wastenot.control.driver import Subject
from wastenot.control.marker import ITERATION
from wastenot.control.one_setting import Change, one_setting
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.pipelines.plan.rank_steps import PlanGraph, Stay
from wastenot.pipelines.run.rank_execution import RankExecution
from wastenot.pipelines.run.rung_follower import RungFollower
from wastenot.planning.switching import SwitchTime, switch_time


@dataclass(slots=True)
class RankRungs:
    """A rank, for a controller: rung 0 is its part of the plan, any other the default clocks, at which it begins.

    Attributes:
        execution: of the rank; whoever marks its instructions has it make its requests.
        graph: of the plan.
        rank: of the pipeline.
        follower: that says which of the plan's rungs its part is of; its own without one.
        rung: that runs.
    """

    execution: RankExecution
    graph: PlanGraph
    rank: int
    follower: RungFollower | None = None
    rung: int = 1
    due_s: float = math.inf
    requests: int = 0

    def __post_init__(self) -> None:
        self.begin(self.rung, 0.0)

    @property
    def target(self) -> Setting:
        """The setting requested."""
        return self.execution.target

    def place(self, name: str) -> int | None:
        """Iterations alone count."""
        return 0 if name == ITERATION else None

    def begin(self, rung: int, now_s: float) -> None:
        """Change to a rung."""
        self.rung = rung
        followed = self.follower
        steps, period_s = (self.graph.steps(self.rank), self.graph.period_s) if followed is None else followed.planned
        if rung:
            steps = tuple(replace(step, stays=(Stay(0.0, AUTO),)) for step in steps)
        self.execution.follow(steps, period_s)

    def resume(self, execution: RankExecution) -> None:
        """The rank's program was started again."""
        self.execution = execution
        self.begin(self.rung, 0.0)

    def mark(self, place: int, iteration: int, reached_s: float) -> None:
        """Nothing is learned from it here."""

    def act(self, now_s: float) -> bool:
        """Nothing is ever due here."""
        return False

    def release(self, now_s: float) -> None:
        """Give the clocks back."""
        self.execution.release(now_s)


def compare_ranks(
    graph: PlanGraph,
    ranks: Sequence[RankRungs],
    gpus: Sequence[Device],
    subject: Subject,
    switching: SwitchTime,
    now_s: float,
    *,
    together: bool = False,
    waits: bool = False,
) -> Controller | None:
    """What compares a plan with the default clocks; ``None`` where the plan leaves everything at them.

    Args:
        graph: of the plan.
        ranks: those that are controlled here, the first one first.
        gpus: that they run on.
        subject: what is applied.
        switching: of the GPUs.
        now_s: moment from which on events are counted.
        together: whether other processes control other GPUs of the job.
        waits: whether it may wait for other pipelines that are slow.
    """
    plan = graph.plan
    changed = next((s for way in graph.ways for each in way.clocks if not (s := each.setting).is_auto), None)
    if changed is None:
        return None
    time_s = max(plan.baseline.time_s, plan.until_s or 0.0)
    change = Change(changed, math.log1p(plan.time_change), math.log1p(plan.energy_change))
    limit = max(plan.max_slowdown or 0.0, 0.0)
    if together:  # each may have measured its own
        switching = plan.switching or switch_time("")
    schedule = one_setting(switching, limit, [change], time_s, plan.baseline.energy_j)
    made = Controller(schedule, gpus, subject, now_s=now_s, executions=ranks, together=together)
    made.waits = waits
    return made
