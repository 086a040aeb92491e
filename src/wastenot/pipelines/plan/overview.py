"""What a pipeline's plan does, in numbers: its iteration before and after, who draws power when, and its frontier.

rank 0  |F0|F1|F2|  |B0|  |B1|  |B2|      before: the default clocks
rank 0  |F0|F1|F2 | B0  |  B1  |B2|       after: the plan's
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.pipelines.plan.frontier_table import FrontierRow, frontier_rows
from wastenot.pipelines.plan.plan import Clocks, PipelinePlan, Way
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.plan.savings import Savings
from wastenot.pipelines.plan.straggler import Rungs, Saving

_STRAGGLERS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True, slots=True)
class Box:
    """An instruction in a time line.

    Attributes:
        rank: that runs it.
        stage: of the model.
        name: such as ``forward``.
        micro_batch: from 0; -1 for what is done once in an iteration.
        begin_s: after the iteration's begin.
        time_s: that it takes.
        energy_j: of one GPU.
        slack_s: how much later it could begin without the iteration's end moving.
        critical: whether it is on a critical path.
        clocks: that it runs at; empty for work of the same time at every clock.
        core_mhz: mean core clock over its time; ``None`` where that is left to the driver.
        overlapped: it runs beside others of its rank, and its energy is what it adds.
    """

    rank: int
    stage: int
    name: str
    micro_batch: int
    begin_s: float
    time_s: float
    energy_j: float
    slack_s: float
    critical: bool
    clocks: tuple[Clocks, ...]
    core_mhz: float | None
    overlapped: bool = False

    @property
    def end_s(self) -> float:
        """After the iteration's begin."""
        return self.begin_s + self.time_s


@dataclass(frozen=True, slots=True, eq=False)
class TimeLine:
    """An iteration of a pipeline.

    Attributes:
        boxes: its instructions, and its fixed work.
        time_s: of the iteration.
        lasts_s: until the next one: longer where all wait for a straggler.
        working_j: of each rank's GPUs while they work; shape (ranks,).
        waiting_j: of each rank's GPUs while they wait; shape (ranks,).
        rank_waiting: fraction of its time in which each rank waits; shape (ranks,).
    """

    boxes: tuple[Box, ...]
    time_s: float
    lasts_s: float
    working_j: FloatArray
    waiting_j: FloatArray
    rank_waiting: FloatArray

    @property
    def energy_j(self) -> float:
        """Of all GPUs of the pipeline until the next iteration."""
        return float(self.working_j.sum() + self.waiting_j.sum())

    @property
    def waiting(self) -> float:
        """Fraction of GPUs' time in which they wait."""
        return float(self.rank_waiting.mean())


@dataclass(frozen=True, slots=True)
class OthersPoints:
    """Plans of another solver for the same pipeline, to be shown beside.

    Attributes:
        name: of the solver.
        points: time and energy of an iteration of each plan, recomputed from the same profile.
    """

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class InstructionClocks:
    """How often an instruction of a stage runs at a core clock.

    Attributes:
        stage: of the model.
        name: of the instruction.
        core_mhz: mean over the instruction; ``None`` where it is left to the driver.
        times: in an iteration.
        of: how often the instruction runs in an iteration, at all clocks.
    """

    stage: int
    name: str
    core_mhz: float | None
    times: int
    of: int


@dataclass(frozen=True, slots=True, eq=False)
class PipelineOverview:
    """What figures and tables of a pipeline's plan show.

    Attributes:
        plan: itself.
        before: an iteration at the default clocks.
        after: an iteration under the plan.
        frontier: plans at other deadlines, by rising time.
        stragglers: what plans save while another pipeline is slow, by how much slower that is than this one at the default
            clocks; empty without a frontier.
        clocks: how often instructions run at which clock under the plan.
        others: plans of other solvers.
        savings: what would be saved in other shapes.
    """

    plan: PipelinePlan
    before: TimeLine
    after: TimeLine
    frontier: tuple[FrontierRow, ...]
    stragglers: Mapping[float, Saving]
    clocks: tuple[InstructionClocks, ...]
    others: tuple[OthersPoints, ...] = ()
    savings: Savings | None = None


def pipeline_overview(
    plan: PipelinePlan, *, others: Sequence[OthersPoints] = (), savings: Savings | None = None
) -> PipelineOverview:
    """The overview of a plan.

    Args:
        plan: to show.
        others: plans of other solvers for the same pipeline, to be shown beside.
        savings: what would be saved in other shapes, to be shown below.

    Raises:
        BadInputError: the plan's schedule deadlocks, or it does not say what instructions take at the default clocks.
    """
    after = PlanGraph(plan)
    place = {(way.stage, way.instruction): index for index, way in enumerate(plan.defaults)}
    missing = {(way.stage, way.instruction) for way in after.ways} - set(place)
    if missing:
        stage, name = min(missing)
        raise BadInputError(f"plan {plan.name}: `defaults`: lack {name} of stage {stage}; make the plan again")
    ranks = tuple(
        each.model_copy(update={"instructions": tuple((place[one.stage, one.name], one.micro_batch) for one in rank)})
        for each, rank in zip(plan.ranks, after.schedule.ranks, strict=True)
    )
    before = PlanGraph(plan.model_copy(update={"ways": plan.defaults, "ranks": ranks, "rungs": ()}))
    frontier = frontier_rows(plan, for_stragglers=True)
    made = time_line(after)
    return PipelineOverview(
        plan, time_line(before), made, frontier, _stragglers(plan), _clocks(made), tuple(others), savings
    )


def time_line(graph: PlanGraph) -> TimeLine:
    """An iteration of a plan."""
    plan, solved = graph.plan, graph.timed
    slack, critical = solved.slack_s.tolist(), solved.critical.tolist()
    begin, time, kind = solved.start_s.tolist(), solved.part_time_s.tolist(), graph.graph.kind.tolist()
    boxes = []
    for part, (rank, each) in enumerate(graph.parts):
        way = graph.ways[part] if part < len(graph.ways) else None
        energy_j = float(graph.graph.ways(kind[part]).energy_j[solved.way[part]]) if way is None else way.energy_j
        boxes.append(
            Box(
                rank, each.stage, each.name, each.micro_batch, begin[part], time[part], energy_j, slack[part],
                critical[part], () if way is None else way.clocks, None if way is None else mean_core_mhz(way),
                overlapped=bool(graph.graph.worker[part] < 0),
            )
        )  # fmt: skip
    if plan.iteration_s:
        boxes += [
            Box(rank, -1, "end of the iteration", -1, solved.time_s, plan.iteration_s, plan.iteration_j, 0.0, True, (), None)
            for rank in range(len(plan.ranks))
        ]
    return _time_line(plan, tuple(boxes), solved.time_s + plan.iteration_s, graph.period_s)


def _time_line(plan: PipelinePlan, boxes: tuple[Box, ...], time_s: float, lasts_s: float) -> TimeLine:
    ranks, gpus = len(plan.ranks), plan.gpus_per_stage
    busy_s, working_j = np.zeros(ranks), np.zeros(ranks)
    for box in boxes:
        busy_s[box.rank] += 0.0 if box.overlapped else box.time_s
        working_j[box.rank] += gpus * box.energy_j
    waiting_j = gpus * plan.waiting_w * (lasts_s - busy_s)
    return TimeLine(boxes, time_s, lasts_s, working_j, waiting_j, 1.0 - busy_s / lasts_s)


def mean_core_mhz(way: Way) -> float | None:
    """Mean core clock over the time of a way, or over its kernels where times are not known."""
    clocks = [(each.core_mhz, each.time_s if each.time_s is not None else float(each.kernels or 1)) for each in way.clocks]
    if any(each.time_s is None for each in way.clocks):
        clocks = [(each.core_mhz, float(each.kernels or 1)) for each in way.clocks]
    known = [(core, weight) for core, weight in clocks if core is not None]
    if len(known) < len(clocks):
        return None
    return sum(core * weight for core, weight in known) / sum(weight for _, weight in known)


def _stragglers(plan: PipelinePlan) -> dict[float, Saving]:
    if not plan.rungs:
        return {}
    rungs, default_s = Rungs(plan), plan.baseline.time_s
    until_s = {slowdown: default_s * (1.0 + slowdown) for slowdown in _STRAGGLERS}
    return {slowdown: rungs.saving(rungs.within(s), s) for slowdown, s in until_s.items() if rungs.time_s[0] <= s}


def _clocks(made: TimeLine) -> tuple[InstructionClocks, ...]:
    counts: dict[tuple[int, str], dict[float | None, int]] = {}
    for box in made.boxes:
        if box.clocks:
            of_one = counts.setdefault((box.stage, box.name), {})
            of_one[box.core_mhz] = of_one.get(box.core_mhz, 0) + 1
    return tuple(
        InstructionClocks(stage, name, core_mhz, times, sum(of_one.values()))
        for (stage, name), of_one in sorted(counts.items())
        for core_mhz, times in sorted(of_one.items(), key=lambda pair: (pair[0] is None, pair[0]))
    )
