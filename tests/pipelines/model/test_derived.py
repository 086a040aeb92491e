"""Profiles derived from others."""

import numpy as np
import pytest

from testbed.small_pipelines import ONE_BY_ONE
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import choice, sequence
from wastenot.pipelines.model.derived import (
    suited,
    with_own_recomputation,
    with_split_backward,
)
from wastenot.pipelines.model.errors import Loadings, ProfileErrors
from wastenot.pipelines.model.iteration_graph import pipeline_graph
from wastenot.pipelines.model.profile import PipelineProfile, listed_ways
from wastenot.pipelines.model.schedules import build_schedule
from wastenot.pipelines.plan.planner import PipelineGoal, plan_pipeline

CLOCKS = (1410.0, 1000.0)


def made(names: dict[str, float], stages: int = 2, **more: object) -> PipelineProfile:
    """Each instruction takes its time at the first clock and 1.25 times that at the second, at 10 and 6 W."""
    ways = {
        (stage, name): choice(
            [(time_s, 10.0 * time_s, Setting(CLOCKS[0])), (1.25 * time_s, 7.5 * time_s, Setting(CLOCKS[1]))]
        )
        for stage in range(stages)
        for name, time_s in names.items()
    }
    baseline = {(stage, name): (time_s, 10.0 * time_s) for stage in range(stages) for name, time_s in names.items()}
    return PipelineProfile("mine", "gpu", "measured", ways, baseline, 1.0, **more)  # type: ignore[arg-type]


WHOLE = {"forward": 1.0, "backward": 2.0}


def fastest(profile: PipelineProfile, name: str) -> tuple[float, float]:
    point = profile.ways[1, name].least_time()
    assert profile.baseline[1, name] == pytest.approx((point.time_s, point.energy_j))
    assert [label for _, _, label in listed_ways(profile.ways[1, name])] == [Setting(clock) for clock in CLOCKS]
    return point.time_s, point.energy_j


@pytest.mark.parametrize("name", ONE_BY_ONE)
@pytest.mark.parametrize("recomputes", [False, True])
def test_every_schedule_finds_its_instructions(name: str, recomputes: bool) -> None:
    schedule = build_schedule(name, ranks=2, micro_batches=3)
    profile = suited(made(WHOLE, schedule.stages, recomputes=recomputes), schedule)
    plan = pipeline_graph(schedule, profile).least_time()
    per_micro_batch = 3.0 + (0.5 if name == "early-recomputation" and not recomputes else 0.0)
    if name == "early-recomputation" and recomputes:  # the last stage, 1 of 2, recomputes no longer
        per_micro_batch = 2.5
    assert plan.part_time_s.sum() == pytest.approx(per_micro_batch * 3 * schedule.stages)
    assert bool(profile.notes) == (name in ("early-recomputation", "zb-h1"))


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_every_schedule_is_planned_from_whole_backwards(name: str) -> None:
    schedule = build_schedule(name, ranks=2, micro_batches=3)
    made_plan = plan_pipeline(made(WHOLE, schedule.stages), schedule, goal=PipelineGoal(max_slowdown=0.1))
    plan = made_plan.plan
    assert plan.predicted.time_s <= 1.1 * plan.baseline.time_s
    assert plan.lower_bound_j <= plan.predicted.energy_j < plan.baseline.energy_j
    assert {way.instruction for way in plan.ways} == {each.name for each in schedule.instructions}
    assert plan.notes == made_plan.profile.notes


def test_recomputation_of_its_own() -> None:
    profile = with_own_recomputation(made(WHOLE))
    assert fastest(profile, "recomputation") == (1.0, 10.0)
    assert fastest(profile, "backward") == (2.0, 20.0)
    taken_out = with_own_recomputation(made({"forward": 1.0, "backward": 3.0}, recomputes=True))
    assert fastest(taken_out, "backward") == (2.0, 20.0)
    assert not taken_out.recomputes
    with pytest.raises(BadInputError, match="stage 0: backward takes no more than forward, which it should include"):
        with_own_recomputation(made({"forward": 2.0, "backward": 2.0}, recomputes=True))


def test_split_backwards_add_up() -> None:
    profile = with_split_backward(made(WHOLE))
    assert fastest(profile, "backward_input") == (1.0, 10.0)
    assert fastest(profile, "backward_weight") == (1.0, 10.0)
    assert "50 %" in profile.notes[-1]
    recomputing = with_split_backward(made({"forward": 1.0, "backward": 3.0}, recomputes=True))
    assert fastest(recomputing, "backward_input") == (2.0, 20.0)
    assert fastest(recomputing, "backward_weight") == (1.0, 10.0)
    joined = suited(profile, build_schedule("1f1b", ranks=2, micro_batches=2))
    assert fastest(joined, "backward") == (2.0, 20.0)


def test_derived_instructions_promise_nothing() -> None:
    keys = made(WHOLE).ways
    loadings = Loadings(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros(2))
    errors = ProfileErrors(dict.fromkeys(keys, loadings), {key: loadings.at(0) for key in keys})
    profile = made(WHOLE, errors=errors)
    assert suited(profile, build_schedule("1f1b", ranks=2, micro_batches=2)).errors is errors
    for name in ("early-recomputation", "zb-h1"):
        derived = suited(profile, build_schedule(name, ranks=2, micro_batches=2))
        assert derived.errors is None
        assert derived.notes[-1] == "derived instructions have no standard errors, so nothing is promised"


def test_what_cannot_be_derived_is_refused() -> None:
    schedule = build_schedule("zb-h1", ranks=2, micro_batches=2)
    with pytest.raises(BadInputError, match="has no backward of stage 0 to derive from"):
        suited(made({"forward": 1.0}), schedule)
    profile = made(WHOLE)
    ways = dict(profile.ways) | {(0, "backward"): choice([(1.0, 1.0, Setting(500.0))])}
    other = PipelineProfile("mine", "gpu", "measured", ways, profile.baseline, 1.0, recomputes=True)
    with pytest.raises(BadInputError, match="stage 0: backward and forward have no setting in common"):
        with_own_recomputation(other)


def test_ways_are_listed_with_their_labels() -> None:
    one = choice([(1.0, 3.0, "a"), (2.0, 4.0, "b")])
    assert listed_ways(one) == [(1.0, 3.0, "a"), (2.0, 4.0, "b")]  # also those that are never worth taking
    assert listed_ways(sequence(one, one)) == [(2.0, 6.0, ("a", "a"))]
