"""Plans of small pipelines to run, from profiles made by a formula."""

from __future__ import annotations

import numpy as np

from wastenot.frontiers.algebra import choice
from wastenot.frontiers.graph import Graph, GraphPlan
from wastenot.setting import Setting
from wastenot.stack.pipeline.build import pipeline_graph
from wastenot.stack.pipeline.plan import Clocks, Iteration, PipelinePlan, RankPlan, Way
from wastenot.stack.pipeline.profile import PipelineProfile
from wastenot.stack.pipeline.schedule import PipelineSchedule
from wastenot.stack.pipeline.schedules import one_forward_one_backward

CLOCKS_MHZ = tuple(float(each) for each in range(900, 1981, 90))


def made_profile(
    stages: int, *, forward_s: float = 0.1, imbalance: float = 0.1, waiting_w: float = 110.0, seed: int = 0, **rest: float
) -> PipelineProfile:
    """A profile like that of a card with clocks up to 1,980 MHz: part of the time does not depend on the clock."""
    rng = np.random.default_rng([seed, 11])
    load = 1.0 + imbalance * rng.uniform(-1.0, 1.0, stages)
    ways, baseline = {}, {}
    for stage in range(stages):
        for name, times in (("forward", 1.0), ("backward", 2.0)):
            at = []
            for mhz in CLOCKS_MHZ:
                x = mhz / CLOCKS_MHZ[-1]
                time_s = times * forward_s * load[stage] * (0.25 + 0.75 / x)
                power_w = 130.0 + 120.0 * x + 420.0 * x**3
                at.append((time_s, time_s * power_w, Setting(mhz)))
            ways[stage, name] = choice(at)
            baseline[stage, name] = at[-1][:2]
    return PipelineProfile("made", "sim:h200", "simulated", ways, baseline, waiting_w, **rest)  # type: ignore[arg-type]


def planned(
    profile: PipelineProfile, micro_batches: int, *, slower: float = 0.0, schedule: PipelineSchedule | None = None
) -> PipelinePlan:
    """The plan of least energy for 1F1B, or another schedule, within its least time and a bit."""
    schedule = schedule or one_forward_one_backward(profile.stages, micro_batches)
    graph = pipeline_graph(schedule, profile)
    deadline_s = graph.least_time().time_s * (1.0 + slower) + 1e-9
    return plan_of(profile, schedule, graph, graph.least_energy(deadline_s), deadline_s)


def plan_of(
    profile: PipelineProfile, schedule: PipelineSchedule, graph: Graph, found: GraphPlan, deadline_s: float
) -> PipelinePlan:
    """The document of a solved graph."""
    number: dict[tuple[int, int], int] = {}
    ways: list[Way] = []
    ranks: list[list[tuple[int, int]]] = [[] for _ in schedule.ranks]
    points = [graph.ways(kind) for kind in range(len(graph.kinds))]
    for instruction, rank, kind, way in zip(
        schedule.instructions, schedule.rank.tolist(), graph.kind.tolist(), found.way.tolist(), strict=True
    ):
        if (kind, way) not in number:
            setting = points[kind][way].choices[0]
            assert isinstance(setting, Setting)
            number[kind, way] = len(ways)
            ways.append(
                Way(
                    stage=instruction.stage, instruction=instruction.name,
                    clocks=(Clocks(core_mhz=setting.core_mhz, memory_mhz=setting.memory_mhz),),
                    time_s=float(points[kind].time_s[way]), energy_j=float(points[kind].energy_j[way]),
                )
            )  # fmt: skip
        ranks[rank].append((number[kind, way], instruction.micro_batch))
    baseline = graph.least_time()
    rest_s, rest_j = profile.iteration_s, profile.iteration_j * len(schedule.ranks)
    return PipelinePlan(
        name=profile.name, device=profile.device, origin=profile.origin, schedule=schedule.name, stages=profile.stages,
        micro_batches=schedule.micro_batches, gpus_per_stage=1, waiting_w=profile.waiting_w, transfer_s=profile.transfer_s,
        iteration_s=rest_s, iteration_j=profile.iteration_j, max_slowdown=None, within_s=deadline_s, until_s=None,
        baseline=Iteration(time_s=baseline.time_s + rest_s, energy_j=baseline.energy_j + rest_j),
        predicted=Iteration(time_s=found.time_s + rest_s, energy_j=found.energy_j + rest_j),
        lower_bound_j=found.lower_bound_j or found.energy_j, ways=tuple(ways),
        ranks=tuple(RankPlan(instructions=tuple(each)) for each in ranks),
    )  # fmt: skip
