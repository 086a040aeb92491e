"""Has a rank run the rung of its plan that it is told, from the begin of an iteration on, and reports how long that took."""

from __future__ import annotations

from wastenot.control.controller import Controller
from wastenot.core.errors import BadInputError
from wastenot.pipelines.plan.plan import PipelinePlan
from wastenot.pipelines.plan.rank_steps import PlanGraph, Step
from wastenot.pipelines.run.rank_execution import RankExecution
from wastenot.pipelines.run.straggler_source import StragglerSource
from wastenot.pipelines.run.stragglers import LEAD


class RungFollower:
    """Follows what a source says.

    Args:
        plan: with rungs.
        rank: of the pipeline.
        source: says which rung.

    Attributes:
        rung: that is run; ``None`` for the plan's own.
    """

    def __init__(self, plan: PlanGraph, rank: int, source: StragglerSource) -> None:
        self._plan, self._rank, self._source = plan, rank, source
        self.rung: int | None = None
        self._known: dict[int | None, tuple[tuple[Step, ...], float]] = {}
        self._began_s: float | None = None

    @property
    def planned(self) -> tuple[tuple[Step, ...], float]:
        """What the rank runs in an iteration, and how long that takes, as planned."""
        return self._steps(self.rung)

    def mark(
        self,
        execution: RankExecution,
        place: int,
        iteration: int,
        now_s: float,
        throttled: str | None = None,
        guard: Controller | None = None,
        *,
        at_default: bool = False,
    ) -> None:
        """The rank begins an instruction; what it runs changes before the first of an iteration.

        An iteration is reported when its last instruction begins: what follows is the time that all wait for each other.

        Args:
            execution: of the rank.
            place: of the instruction among the rank's.
            iteration: counted from 0, alike on all ranks.
            now_s: when it begins.
            throttled: why the GPU is held back, if it is.
            guard: what compares with the default clocks.
            at_default: whether these run instead.
        """
        if place == 0:
            rung = self._source.rung(iteration)
            if rung != self.rung:
                self.rung = rung
                if not at_default:
                    execution.follow(*self.planned)
                if guard is not None:
                    guard.replanned()
            if guard is not None and self._source.compare <= iteration + 2 * LEAD:  # else somebody counted wrong
                guard.begin_together(self._source.compare)
            self._began_s = now_s
        elif place == len(execution.steps) - 1 and self._began_s is not None:
            planned_s = execution.steps[-1].start_s - execution.steps[0].start_s
            if planned_s > 0.0 and now_s > self._began_s:
                factor = None if at_default else (now_s - self._began_s) / planned_s
                self._source.ended(iteration, factor, throttled, suspects=guard is not None and guard.suspects)
            self._began_s = None

    def close(self) -> None:
        """Follow nobody any more."""
        self.rung = None
        self._source.close()

    def _steps(self, rung: int | None) -> tuple[tuple[Step, ...], float]:
        if rung not in self._known:
            graph = self._plan if rung is None else PlanGraph(plan_at(self._plan.plan, rung))
            self._known[rung] = graph.steps(self._rank), graph.period_s
        return self._known[rung]


def plan_at(plan: PipelinePlan, rung: int) -> PipelinePlan:
    """The plan that runs the ways of one of its rungs.

    Raises:
        BadInputError: there is no such rung.
    """
    if not 0 <= rung < len(plan.rungs):
        raise BadInputError(f"rung {rung}: the plan has rungs 0 to {len(plan.rungs) - 1}")
    ranks = tuple(
        rank.model_copy(
            update={
                "instructions": tuple(
                    (way, micro_batch) for way, (_, micro_batch) in zip(ways, rank.instructions, strict=True)
                )
            }
        )
        for ways, rank in zip(plan.rungs[rung].ways, plan.ranks, strict=True)
    )
    return plan.model_copy(update={"ranks": ranks, "until_s": None})
