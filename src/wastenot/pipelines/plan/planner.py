"""Plans of a pipeline: the clocks of least energy for each instruction within a slowdown, or until a straggler is done."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import ClassVar

import numpy as np

from wastenot.core.arrays import IndexArray
from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.core.progress import Progress
from wastenot.core.result import HasPage
from wastenot.core.setting import Setting
from wastenot.frontiers.graph import Graph, GraphPlan
from wastenot.frontiers.graph_rounding import Effort
from wastenot.pipelines.model.derived import suited
from wastenot.pipelines.model.iteration_graph import baseline_of, pipeline_graph
from wastenot.pipelines.model.profile import PipelineProfile
from wastenot.pipelines.model.schedule import Instruction, PipelineSchedule, backwards_beside
from wastenot.pipelines.model.ways import Stretch
from wastenot.pipelines.plan.confidence import judged_plan, keep_with_confidence, surely_done_s
from wastenot.pipelines.plan.plan import (
    OF_THE_PROFILE,
    Clocks,
    FixedWork,
    Iteration,
    PipelinePlan,
    Promise,
    RankPlan,
    Rung,
    Way,
)
from wastenot.planning.objective import DEFAULT_CONFIDENCE, Objective

_EFFORT = Effort(steps=40_000)  # for improving one plan; some 5 to 10 s
MOST_PLANS = 10_000  # of a frontier: each is in the plan's file


@dataclass(frozen=True, slots=True, eq=False)
class PlannedPipeline(HasPage):
    """A pipeline's plan, and what it was made from.

    Attributes:
        plan: settings for each instruction of each rank, as they are written to a file.
        profile: what each instruction can take.
        schedule: the order of instructions.
        graph: both together; its first parts are the schedule's instructions, rank after rank.
        solved: the plan as a way for each part of the graph.
        baseline: every instruction at the default clocks, in a graph with the same parts.
        fastest: every instruction as fast as it can be.
    """

    drawn_by: ClassVar[str] = "wastenot.pipelines.page.page:planned_page"

    plan: PipelinePlan
    profile: PipelineProfile
    schedule: PipelineSchedule
    graph: Graph
    solved: GraphPlan
    baseline: GraphPlan
    fastest: GraphPlan

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the plan, for the ranks; raises :class:`BadInputError` where that is not possible."""
        self.plan.write(path)


@dataclass(frozen=True, slots=True)
class PipelineGoal:
    """What a pipeline's plan is to achieve: lowest energy within a time.

    Attributes:
        max_slowdown: allowed, of an iteration at the default clocks.
        confidence: with which the plan stays within its slowdown limit or finishes before the straggler; 0.95 if the profile
            says how noisy it is.
        straggler: another pipeline is slower than this one at its default clocks by this fraction, and all wait for it.
        straggler_s: the same, as the time of the other pipeline's iteration.
        time_limit_s: improve the plan for this long, which makes it depend on the speed of the machine, and is recorded in
            it. By default the amount of work is fixed, about 10 s per plan.

    Raises:
        BadInputError: a number is out of range.
    """

    max_slowdown: float = 0.0
    confidence: float | None = None
    straggler: float | None = None
    straggler_s: float | None = None
    time_limit_s: float | None = None

    def __post_init__(self) -> None:
        _ = self.objective  # checks both
        if self.time_limit_s is not None and not 0.0 < self.time_limit_s < math.inf:
            raise BadInputError(f"`time_limit_s` {self.time_limit_s:g}: must be above 0 and finite")
        if self.straggler is not None and self.straggler_s is not None:
            raise BadInputError("`straggler`, `straggler_s`: give one of them")

    @property
    def objective(self) -> Objective:
        """What is minimised, of the list of objectives."""
        return Objective("waste", self.max_slowdown, confidence=self.confidence)

    def until_s(self, default_s: float) -> float | None:
        """Time of the straggler's iteration, where this pipeline's takes so long; ``None`` where there is none."""
        if self.straggler is None and self.straggler_s is None:
            return None
        until_s = self.straggler_s if self.straggler_s is not None else default_s * (1.0 + (self.straggler or 0.0))
        if not default_s <= until_s < math.inf:
            raise BadInputError(
                f"`straggler_s` {until_s:g}: at its default clocks this pipeline itself takes {default_s:.9g} s; "
                "a straggler takes at least as long"
            )
        return until_s


def plan_pipeline(profile: PipelineProfile, schedule: PipelineSchedule, goal: PipelineGoal | None = None) -> PlannedPipeline:
    """The plan of least energy of a pipeline.

    Where the profile says how far it can be off, the plan stays within the slowdown limit with a confidence.

    Args:
        profile: what each instruction can take; what the schedule runs and it lacks is derived, and noted in the plan.
        schedule: the order of instructions.
        goal: what is allowed; by default no slowdown.

    Raises:
        BadInputError: a number is out of range, or profile and schedule do not fit.
        InfeasibleError: no plan is that fast, or none surely; names the fastest.
    """
    goal = goal or PipelineGoal()
    max_slowdown, confidence, time_limit_s = goal.max_slowdown, goal.confidence, goal.time_limit_s
    profile = suited(profile, schedule)
    effort = _EFFORT if time_limit_s is None else Effort(seconds=time_limit_s)
    graph = pipeline_graph(schedule, profile)
    baseline = baseline_of(schedule, profile)
    default_s = baseline.exact_time_s + Fraction(profile.iteration_s)
    until_s = goal.until_s(float(default_s))
    deadline = default_s * (1 + Fraction(max_slowdown))
    if until_s is not None:
        deadline = max(deadline, Fraction(until_s))
    _check_deadline(graph, profile, deadline, float(default_s))
    solved: GraphPlan
    promise: Promise | None = None
    if profile.errors is None and confidence is None:
        until = profile.graph_until_s(until_s)
        solved = graph.least_energy(deadline - Fraction(profile.iteration_s), until_s=until, effort=effort)
    else:
        sure = keep_with_confidence(
            schedule,
            profile,
            max_slowdown=max_slowdown,
            until_s=until_s,
            confidence=DEFAULT_CONFIDENCE if confidence is None else confidence,
            effort=effort,
        )
        solved, promise = sure.solved, sure.promise
    ways = _Ways(schedule, graph)
    ranks = ways.ranks(solved)
    plan = PipelinePlan(
        **{name: getattr(profile, name) for name in OF_THE_PROFILE},
        schedule=schedule.name,
        stages=schedule.stages,
        micro_batches=schedule.micro_batches,
        max_slowdown=max_slowdown,
        within_s=float(deadline),
        until_s=until_s,
        baseline=Iteration(time_s=float(default_s), energy_j=total_j(profile, schedule, baseline, until_s)),
        predicted=Iteration(
            time_s=solved.time_s + profile.iteration_s, energy_j=total_j(profile, schedule, solved, until_s)
        ),
        lower_bound_j=_bound_j(profile, schedule, solved),
        promise=promise,
        ways=tuple(ways.listed),
        ranks=ranks,
        defaults=_defaults(profile, graph),
        fixed=tuple(FixedWork(stage=stage, name=name, **asdict(each)) for (stage, name), each in profile.fixed.items()),
        time_limit_s=time_limit_s,
    )
    return PlannedPipeline(plan.sealed(), profile, schedule, graph, solved, baseline, graph.least_time())


def _defaults(profile: PipelineProfile, graph: Graph) -> tuple[Way, ...]:
    """The ways of the baseline; where the highest clocks stand for the default ones, with those."""
    found = []
    for kind, ((stage, name), (time_s, energy_j)) in enumerate((key, profile.baseline[key]) for key in profile.ways):
        points = graph.ways(kind)
        same = np.flatnonzero((points.time_s == time_s) & (points.energy_j == energy_j))
        highest = profile.baseline_clocks == "highest" and len(same) > 0
        clocks = clocks_of(points[int(same[0])].choices) if highest else (Clocks(core_mhz=None),)
        found.append(Way(stage=stage, instruction=name, clocks=clocks, time_s=time_s, energy_j=energy_j))
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class FrontierPlan:
    """A plan of least energy at a deadline.

    Attributes:
        within_s: the deadline of an iteration.
        solved: the plan.
        stragglers_only: it is slower than that of least energy, and all wait until the deadline.
    """

    within_s: float
    solved: GraphPlan
    stragglers_only: bool


def frontier_rungs(made: PlannedPipeline, number: int, progress: Progress | None = None) -> Iterator[FrontierPlan]:
    """Plans at evenly spaced deadlines, from the fastest to that of least energy, and beyond it.

    While all wait for a straggler, plans slower than that of least energy still save; they follow until no time saves
    anything, at steps of their own.

    Args:
        made: the pipeline.
        number: of plans up to the lowest-energy one, at least 2.
        progress: informed of both parts.

    Yields:
        Each plan, by rising deadline.
    """
    if number < 2:
        raise BadInputError(f"`frontier` {number}: must be at least 2")
    if number > MOST_PLANS:
        raise BadInputError(f"`frontier` {number}: must be at most {MOST_PLANS:,}")
    added_s, last_s = made.profile.iteration_s, 0.0
    if progress is not None:
        progress.begin(2)
    for held, what in ((False, "plans up to the lowest-energy one"), (True, "plans for stragglers")):
        found = made.graph.frontier(number, held=held)
        if progress is not None:
            progress.step(what)
        for within_s, solved in zip(found.within_s.tolist(), found.plans, strict=True):
            if not held or within_s > last_s:
                yield FrontierPlan(within_s + added_s, solved, held)
        last_s = float(found.within_s[-1])


def with_rungs(made: PlannedPipeline, found: Iterable[FrontierPlan]) -> PlannedPipeline:
    """The same with more plans of its frontier in its document, and itself among them."""
    own_plan, added_s = made.plan, made.profile.iteration_s
    listed = list(found)
    if own_plan.until_s is None and own_plan.within_s is not None:
        listed = [each for each in listed if not np.array_equal(each.solved.way, made.solved.way)]
        listed.append(FrontierPlan(own_plan.within_s, made.solved, stragglers_only=False))
    ways = _Ways(made.schedule, made.graph)
    ranks = ways.ranks(made.solved)
    sure: Iterable[float | None] = [None] * len(listed)
    if own_plan.promise is not None:
        plans = [each.solved for each in listed]
        sure = surely_done_s(made.schedule, made.profile, made.solved, plans, own_plan.promise.confidence)
    rungs = sorted(
        (
            Rung(
                within_s=each.within_s,
                time_s=each.solved.time_s + added_s,
                energy_j=energy_j,
                stragglers_only=each.stragglers_only,
                sure_s=sure_s,
                lower_bound_j=min(_bound_j(made.profile, made.schedule, each.solved, each.solved.time_s), energy_j),
                ways=tuple(tuple(way for way, _ in rank) for rank in ways.of(each.solved)),
            )
            for each, sure_s in zip(listed, sure, strict=True)
            for energy_j in (total_j(made.profile, made.schedule, each.solved, each.solved.time_s + added_s),)
        ),
        key=lambda rung: rung.time_s,
    )
    plan = made.plan.model_copy(update={"ways": tuple(ways.listed), "ranks": ranks, "rungs": tuple(rungs)})
    return replace(made, plan=plan.sealed())


def replanned(made: PlannedPipeline, way: IndexArray) -> PlannedPipeline:
    """The same pipeline with other ways for the parts of its graph; the bound stays, for it is on every plan."""
    profile, schedule = made.profile, made.schedule
    until_s = made.plan.until_s
    solved = made.graph.plan(way, profile.graph_until_s(until_s))
    solved = replace(solved, lower_bound_j=made.solved.lower_bound_j)
    ways = _Ways(schedule, made.graph)
    ranks = ways.ranks(solved)
    predicted = Iteration(time_s=solved.time_s + profile.iteration_s, energy_j=total_j(profile, schedule, solved, until_s))
    changed = {"predicted": predicted, "ways": tuple(ways.listed), "ranks": ranks, "rungs": ()}
    if (before := made.plan.promise) is not None:
        sure = judged_plan(
            schedule,
            profile,
            solved,
            max_slowdown=made.plan.max_slowdown or 0.0,
            until_s=until_s,
            confidence=before.confidence,
        )
        changed["promise"] = sure.promise
    plan = made.plan.model_copy(update=changed)
    return replace(made, plan=plan.sealed(), solved=solved)


def total_j(profile: PipelineProfile, schedule: PipelineSchedule, solved: GraphPlan, until_s: float | None = None) -> float:
    """Energy of all GPUs of a pipeline in an iteration, waiting for a straggler included."""
    ranks = len(schedule.ranks)
    lasts_s = max(solved.time_s, 0.0 if until_s is None else until_s - profile.iteration_s)
    waiting_j = profile.waiting_w * ranks * (lasts_s - solved.lasts_s)
    return profile.gpus_per_stage * (solved.energy_j + waiting_j + profile.iteration_j * ranks)


def _bound_j(profile: PipelineProfile, schedule: PipelineSchedule, solved: GraphPlan, lasts_s: float | None = None) -> float:
    """The lower bound of :func:`total_j`, where GPUs are kept as long as the plan keeps them, or so long."""
    assert solved.lower_bound_j is not None
    ranks = len(schedule.ranks)
    waiting_j = 0.0 if lasts_s is None else profile.waiting_w * ranks * (lasts_s - solved.lasts_s)
    return profile.gpus_per_stage * (solved.lower_bound_j + waiting_j + profile.iteration_j * ranks)


def _check_deadline(graph: Graph, profile: PipelineProfile, deadline: Fraction, default_s: float) -> None:
    fastest = graph.least_time()
    if fastest.exact_time_s + Fraction(profile.iteration_s) > deadline:
        fastest_s = fastest.time_s + profile.iteration_s
        least = fastest_s / default_s - 1.0
        raise InfeasibleError(
            f"no plan finishes in {float(deadline):.6g} s; the fastest takes {fastest_s:.9g} s, a slowdown of {least:.6g}",
            least_slowdown=least,
            asked=f"`max_slowdown` {float(deadline) / default_s - 1.0:.6g}",
        )


class _Ways:
    """The ways that plans take, each listed once."""

    def __init__(self, schedule: PipelineSchedule, graph: Graph) -> None:
        self.listed: list[Way] = []
        self._schedule, self._graph = schedule, graph
        self._place: dict[tuple[int, int], int] = {}

    def of(self, solved: GraphPlan) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each rank its instructions: (index into the ways, micro-batch)."""
        parts = iter(zip(self._graph.kind.tolist(), solved.way.tolist(), strict=True))  # the first are the instructions
        return tuple(
            tuple((self._index(each, *part), each.micro_batch) for each, part in zip(rank, parts, strict=False))
            for rank in self._schedule.ranks
        )

    def ranks(self, solved: GraphPlan) -> tuple[RankPlan, ...]:
        """The same as a plan holds it."""
        return tuple(
            RankPlan(instructions=found, beside=backwards_beside(rank))
            for found, rank in zip(self.of(solved), self._schedule.ranks, strict=True)
        )

    def _index(self, each: Instruction, kind: int, way: int) -> int:
        place = self._place.setdefault((kind, way), len(self.listed))
        if place == len(self.listed):
            points = self._graph.ways(kind)
            self.listed.append(
                Way(
                    stage=each.stage,
                    instruction=each.name,
                    clocks=clocks_of(points[way].choices),
                    time_s=float(points.time_s[way]),
                    energy_j=float(points.energy_j[way]),
                )
            )
        return place


def clocks_of(labels: Iterable[object]) -> tuple[Clocks, ...]:
    """The clocks of a way, from the labels of its choices: settings, or tuples of a setting or stretch after another."""
    clocks: list[Clocks] = []
    for each in chain.from_iterable(label if isinstance(label, tuple) else (label,) for label in labels):
        stretch = each if isinstance(each, Stretch) else None
        setting = each if stretch is None else stretch.setting
        assert isinstance(setting, Setting)
        one = Clocks(
            core_mhz=setting.core_mhz,
            memory_mhz=setting.memory_mhz,
            power_limit_w=setting.power_limit_w,
            kernels=1 if stretch is None else stretch.kernels,
            time_s=None if stretch is None else stretch.time_s,
        )
        if clocks and clocks[-1].setting == setting:
            last = clocks.pop()
            assert last.kernels is not None and one.kernels is not None
            time_s = None if last.time_s is None or one.time_s is None else last.time_s + one.time_s
            one = one.model_copy(update={"kernels": last.kernels + one.kernels, "time_s": time_s})
        clocks.append(one)
    return tuple(clocks) if len(clocks) > 1 else (clocks[0].model_copy(update={"kernels": None, "time_s": None}),)
