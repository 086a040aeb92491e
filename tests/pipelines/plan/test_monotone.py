"""Lasting plans within looser limits, or with switches at all, are never worse."""

from itertools import pairwise
from unittest.mock import patch

import pytest

from testbed.pipeline_runs import made_profile
from testbed.small_pipelines import hastily
from wastenot.pipelines.model.schedules import build_schedule
from wastenot.pipelines.plan import annealing
from wastenot.pipelines.plan.planner import PipelineGoal, plan_pipeline
from wastenot.pipelines.plan.switched import with_switching
from wastenot.planning.switching import switch_time

LIMITS = (0.0, 0.02, 0.05)  # within all but the last, plans are looked for whenever a limit is looser


@pytest.mark.parametrize(
    ("name", "ranks", "micro_batches", "seed"), [("1f1b", 3, 5, 1), ("gpipe", 2, 5, 2), ("1f1b", 2, 6, 3)]
)
def test_a_looser_limit_or_a_switch_in_time_never_saves_less(name, ranks, micro_batches, seed):
    profile = made_profile(ranks, imbalance=0.2, seed=seed)
    schedule = build_schedule(name, ranks=ranks, micro_batches=micro_batches)
    never_j = None
    with hastily(), patch.object(annealing, "_PROPOSALS", 4):
        for seconds in (1e3, 0.3, 0.1):
            plans = [
                with_switching(
                    plan_pipeline(profile, schedule, PipelineGoal(max_slowdown=each)), switch_time("", seconds)
                ).plan
                for each in LIMITS
            ]
            energy_j = [each.predicted.energy_j for each in plans]
            assert all(looser <= tighter for tighter, looser in pairwise(energy_j))
            assert all(each.predicted.energy_j <= each.baseline.energy_j * (1.0 + 1e-12) for each in plans)
            never_j = never_j or energy_j
            assert all(each <= never for each, never in zip(energy_j, never_j, strict=True))
