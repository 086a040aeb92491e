"""What a rank of a plan runs, in order, with when each instruction is expected and which settings it wants.

stage 0   |F0|F1|F2|   |B0|   |B1|    |B2|all-reduce|F0 ...
wants     ─a──────┐────b──┐────c────────────────────┐a
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wastenot.core.arrays import IndexArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.graph import Graph, GraphPlan
from wastenot.pipelines.model.iteration_graph import pipeline_graph, pipeline_parts
from wastenot.pipelines.model.profile import Fixed, PipelineProfile
from wastenot.pipelines.model.schedule import Instruction, PipelineSchedule, joined
from wastenot.pipelines.plan.plan import OF_THE_PROFILE, PipelinePlan, RankPlan, Way


@dataclass(frozen=True, slots=True)
class Stay:
    """A setting that an instruction wants from a moment on.

    Attributes:
        offset_s: after the instruction's begin.
        setting: from then on.
    """

    offset_s: float
    setting: Setting


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction of a rank.

    Attributes:
        instruction: what is run.
        stays: the settings that it wants, the first from its begin.
        start_s: when the plan expects it to begin, from the iteration's begin.
        time_s: that the plan expects it to take.
        energy_j: likewise.
    """

    instruction: Instruction
    stays: tuple[Stay, ...]
    start_s: float
    time_s: float
    energy_j: float


class PlanGraph:
    """The graph of a plan: its instructions with the ways that the plan chose.

    Args:
        plan: the plan.

    Raises:
        BadInputError: the plan names a way that it does not list, or its schedule deadlocks.
    """

    def __init__(self, plan: PipelinePlan) -> None:
        self.plan = plan
        for number, rank in enumerate(plan.ranks):
            for way, micro_batch in rank.instructions:
                if way >= len(plan.ways) or micro_batch >= plan.micro_batches:
                    raise BadInputError(
                        f"rank {number}: instruction ({way}, {micro_batch}): the plan has {len(plan.ways)} ways and "
                        f"{plan.micro_batches} micro-batches, counted from 0"
                    )
        self.ways: tuple[Way, ...] = tuple(plan.ways[way] for rank in plan.ranks for way, _ in rank.instructions)
        self.schedule = PipelineSchedule(
            plan.schedule,
            plan.stages,
            plan.micro_batches,
            tuple(_instructions(plan, rank, f"rank {number}") for number, rank in enumerate(plan.ranks)),
        )

    @cached_property
    def profile(self) -> PipelineProfile:
        """What instructions can take, of the ways that the plan lists; a way is labelled with its number."""
        plan = self.plan
        listed: dict[tuple[int, str], list[tuple[float, float, int]]] = {}
        for number, way in enumerate(plan.ways):
            listed.setdefault((way.stage, way.instruction), []).append((way.time_s, way.energy_j, number))
        return PipelineProfile(
            **{name: getattr(plan, name) for name in OF_THE_PROFILE},
            ways={key: choice(each) for key, each in listed.items()},
            baseline={key: each[0][:2] for key, each in listed.items()},
            fixed={(each.stage, each.name): Fixed(each.time_s, each.energy_j, each.overlapped) for each in plan.fixed},
        )

    @cached_property
    def graph(self) -> Graph:
        """The graph; its parts are the instructions, rank after rank, and then fixed work."""
        return pipeline_graph(self.schedule, self.profile)

    @cached_property
    def parts(self) -> tuple[tuple[int, Instruction], ...]:
        """The rank and the instruction of each part."""
        return pipeline_parts(self.schedule, self.profile)

    @cached_property
    def _place(self) -> dict[tuple[int, object], int]:
        graph = self.graph
        return {
            (kind, graph.ways(kind)[index].choices[0]): index
            for kind in range(len(self.profile.ways))
            for index in range(len(graph.ways(kind)))
        }

    def timed_as(self, ways: Iterable[Iterable[int]], until_s: float | None = None) -> GraphPlan:
        """When each instruction runs, if the ranks take other ways of the plan.

        Args:
            ways: for each rank, in the order of its instructions.
            until_s: all wait until then, from the beginning of the iteration.

        Raises:
            BadInputError: a way is worse than another one, so that no plan takes it.
        """
        numbers = [number for rank in ways for number in rank]
        taken = np.zeros(len(self.graph), dtype=np.intp)  # fixed work has one way
        for part, number in enumerate(numbers):
            way = self._place.get((int(self.graph.kind[part]), number))
            if way is None:
                raise BadInputError(f"way {number}: another way of its instruction is faster and uses less energy")
            taken[part] = way
        return self.graph.plan(taken, until_s)

    @cached_property
    def timed(self) -> GraphPlan:
        """When each instruction runs."""
        return self.timed_as((way for way, _ in rank.instructions) for rank in self.plan.ranks)

    @property
    def period_s(self) -> float:
        """From the begin of an iteration to that of the next."""
        return max(self.timed.time_s + self.plan.iteration_s, self.plan.until_s or 0.0)

    @property
    def first(self) -> IndexArray:
        """Index of each rank's first instruction, and one past the last; shape (ranks + 1,)."""
        return np.cumsum([0, *(len(rank.instructions) for rank in self.plan.ranks)])

    def steps(self, rank: int) -> tuple[Step, ...]:
        """What a rank runs.

        Raises:
            BadInputError: the plan has no such rank.
        """
        if not 0 <= rank < len(self.plan.ranks):
            raise BadInputError(f"`rank` {rank}: the plan has ranks 0 to {len(self.plan.ranks) - 1}")
        start_s, instructions = self.timed.start_s, self.schedule.ranks[rank]
        begin = int(self.first[rank])
        return tuple(
            Step(each, stays_of(way), float(start_s[part]), way.time_s, way.energy_j)
            for part, (each, way) in enumerate(
                zip(instructions, self.ways[begin : begin + len(instructions)], strict=True), start=begin
            )
        )


def _instructions(plan: PipelinePlan, rank: RankPlan, where: str) -> tuple[Instruction, ...]:
    ways = ((plan.ways[way], micro_batch) for way, micro_batch in rank.instructions)
    return joined(((way.instruction, way.stage, micro_batch) for way, micro_batch in ways), rank.beside, where)


def stays_of(way: Way) -> tuple[Stay, ...]:
    """The settings of a way one after another; where a plan does not say how long each lasts, by its share of kernels."""
    if len(way.clocks) == 1:
        return (Stay(0.0, way.clocks[0].setting),)
    kernels = sum(each.kernels or 1 for each in way.clocks)
    found: list[Stay] = []
    offset_s = 0.0
    for each in way.clocks:
        if not found or found[-1].setting != each.setting:
            found.append(Stay(offset_s, each.setting))
        offset_s += way.time_s * (each.kernels or 1) / kernels if each.time_s is None else each.time_s
    return tuple(found)
