"""Plans of small pipelines to run, from profiles made by a formula."""

from __future__ import annotations

import numpy as np

from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import choice
from wastenot.pipelines.model.profile import PipelineProfile
from wastenot.pipelines.model.schedule import PipelineSchedule
from wastenot.pipelines.model.schedules import one_forward_one_backward
from wastenot.pipelines.plan.plan import PipelinePlan
from wastenot.pipelines.plan.planner import PipelineGoal, plan_pipeline

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
    """The plan of least energy for 1F1B, or another schedule, within a slowdown."""
    schedule = schedule or one_forward_one_backward(profile.stages, micro_batches)
    return plan_pipeline(profile, schedule, goal=PipelineGoal(max_slowdown=slower)).plan
