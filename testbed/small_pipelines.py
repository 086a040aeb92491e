"""Small pipelines of made-up stages, planned, for what is shown of plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from unittest.mock import patch

from wastenot.core.setting import AUTO, Setting
from wastenot.frontiers import graph_rounding
from wastenot.frontiers.algebra import choice
from wastenot.pipelines.model.profile import Fixed, PipelineProfile
from wastenot.pipelines.model.schedules import SCHEDULES, build_schedule
from wastenot.pipelines.plan import lasting_bound, planner, savings
from wastenot.pipelines.plan.planner import PipelineGoal, PlannedPipeline, frontier_rungs, plan_pipeline, with_rungs

CLOCKS = (900.0, 1100.0, 1300.0, 1500.0, 1700.0)
NAMES = {
    "1f1b": ("forward", "backward"),
    "gpipe": ("forward", "backward"),
    "interleaved": ("forward", "backward"),
    "early-recomputation": ("forward", "recomputation", "backward"),
    "zb-h1": ("forward", "backward_input", "backward_weight"),
    "dualpipe": ("forward", "backward"),
}

ONE_BY_ONE = tuple(name for name in SCHEDULES if name != "dualpipe")
"""Schedules whose forwards and backwards run one at a time, for any number of ranks and micro-batches."""


@contextmanager
def hastily() -> Iterator[None]:
    """Plans and bounds made inside are improved for a hundredth as long, where it does not matter how good they are."""
    hasty = replace(planner._EFFORT, steps=400)
    with (
        patch.object(planner, "_EFFORT", hasty),
        patch.object(savings, "_EFFORT", hasty),
        patch.object(graph_rounding, "_MOST_STEPS", hasty.steps),
        patch.object(lasting_bound, "_MOST_STEPS", 10),
    ):
        yield


def small_profile(
    stages: int, names: tuple[str, ...] = NAMES["1f1b"], *, auto: bool = True, name: str = "toy"
) -> PipelineProfile:
    """Stages that get a little longer from one to the next; at auto as fast as at the highest clock, for more energy."""
    ways, baseline = {}, {}
    for stage in range(stages):
        for index, instruction in enumerate(names):
            work_s = (0.02 + 0.01 * index) * (1.0 + 0.05 * stage)
            points = [
                (work_s * (0.2 + 0.8 * 1700.0 / clock), work_s * (80.0 + 300.0 * (clock / 1700.0) ** 2), Setting(clock))
                for clock in CLOCKS
            ]
            highest = points[-1][:2]
            baseline[stage, instruction] = (highest[0], 1.05 * highest[1]) if auto else highest
            if auto:
                points.append((*baseline[stage, instruction], AUTO))
            ways[stage, instruction] = choice(points)
    return PipelineProfile(
        name, "sim:toy", "simulated", ways, baseline, 70.0, baseline_clocks="auto" if auto else "highest"
    )  # fmt: skip


@cache
def planned(
    schedule: str = "1f1b",
    *,
    ranks: int = 4,
    micro_batches: int = 6,
    auto: bool = False,
    straggler: float | None = None,
    rungs: int = 0,
    fixed: bool = False,
    gpus: int = 1,
    name: str = "toy",
) -> PlannedPipeline:
    """A plan without any slowdown, made hastily."""
    made = build_schedule(schedule, ranks=ranks, micro_batches=micro_batches)
    profile = replace(small_profile(made.stages, NAMES[schedule], auto=auto, name=name), gpus_per_stage=gpus)
    if fixed:
        work = {"load": Fixed(0.004, 0.5), "receive": Fixed(0.002, 0.3), "all_reduce": Fixed(0.01, 1.0, overlapped=True)}
        work["optimizer"] = Fixed(0.005, 0.8)
        profile = replace(
            profile,
            fixed={(stage, what): each for stage in range(made.stages) for what, each in work.items()},
            iteration_s=0.01,
            iteration_j=1.5,
            notes=("links between stages take no time",),
        )
    with hastily():
        found = plan_pipeline(profile, made, goal=PipelineGoal(straggler=straggler))
    return with_rungs(found, frontier_rungs(found, rungs)) if rungs else found
