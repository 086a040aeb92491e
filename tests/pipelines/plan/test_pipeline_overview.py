"""What is shown of a pipeline's plan adds up to the plan's own numbers."""

import itertools

import numpy as np
import pytest

from testbed.small_pipelines import ONE_BY_ONE, hastily, planned, small_profile
from wastenot.core.errors import BadInputError
from wastenot.pipelines.model.schedules import build_schedule
from wastenot.pipelines.plan.overview import mean_core_mhz, pipeline_overview
from wastenot.pipelines.plan.plan import Clocks, Way
from wastenot.pipelines.plan.savings import merged_stages, savings_by_shape, with_last_stage

SMALL = {"ranks": 3, "micro_batches": 4}
CASES = {
    **{name: {"schedule": name} | SMALL for name in ONE_BY_ONE if name != "gpipe"},  # which is 1f1b in another order
    "dualpipe": {"schedule": "dualpipe", "ranks": 4, "micro_batches": 8},
    "auto": {"auto": True} | SMALL,
    "straggler": {"straggler": 0.3, "rungs": 4, "fixed": True, "gpus": 8} | SMALL,
    "one rank": {"ranks": 1, "micro_batches": 2},
    "one micro-batch": {"ranks": 3, "micro_batches": 1},
}


@pytest.fixture(scope="module", params=CASES)
def shown(request):
    plan = planned(**CASES[request.param]).plan
    return plan, pipeline_overview(plan)


def test_both_iterations_take_what_the_plan_says(shown):
    plan, seen = shown
    for line, told in ((seen.before, plan.baseline), (seen.after, plan.predicted)):
        assert line.time_s == pytest.approx(told.time_s, rel=1e-12)
        assert line.lasts_s == pytest.approx(max(told.time_s, plan.until_s or 0.0), rel=1e-12)
        assert line.energy_j == pytest.approx(told.energy_j, rel=1e-12)


def test_boxes_are_the_plans_instructions_and_do_not_overlap(shown):
    plan, seen = shown
    for rank, own in enumerate(plan.ranks):
        boxes = [box for box in seen.after.boxes if box.rank == rank and box.clocks]
        told = [(plan.ways[way].stage, plan.ways[way].instruction, batch) for way, batch in own.instructions]
        assert [(box.stage, box.name, box.micro_batch) for box in boxes] == told
        busy = sorted((b for b in seen.after.boxes if b.rank == rank and not b.overlapped), key=lambda b: b.begin_s)
        for one, other in itertools.pairwise(busy):
            assert one.end_s <= other.begin_s + 1e-9
    assert any(box.critical for box in seen.after.boxes)
    assert all(box.critical == (box.slack_s <= 1e-9 * seen.after.time_s) for box in seen.after.boxes if box.clocks)


def test_the_highest_clocks_stand_for_the_default_ones_where_a_profile_has_none():
    highest, auto = (pipeline_overview(planned(auto=auto, **SMALL).plan) for auto in (False, True))
    assert {box.core_mhz for box in highest.before.boxes} == {1700.0}
    assert {box.core_mhz for box in auto.before.boxes} == {None}


def test_clocks_are_counted_once_for_each_micro_batch():
    seen = pipeline_overview(planned(**SMALL).plan)
    for stage in range(3):
        own = [each for each in seen.clocks if (each.stage, each.name) == (stage, "forward")]
        assert sum(each.times for each in own) == 4 == own[0].of


def test_a_straggler_is_met_by_the_frontiers_plan_and_its_waiting():
    made = planned(rungs=6, **SMALL)
    plan = made.plan
    points = pipeline_overview(plan).stragglers
    assert list(points) == [0.05, 0.1, 0.2, 0.3, 0.4, 0.5]
    for each in points.values():
        waiting = plan.baseline.energy_j + 70.0 * 3 * (each.until_s - plan.baseline.time_s)
        assert each.default_j == pytest.approx(waiting)
        bound = made.graph.lower_bound_j(each.until_s, until_s=each.until_s)
        assert bound * (1 - 1e-9) <= each.energy_j < each.default_j


def test_a_plan_without_its_defaults_says_so():
    plan = planned(**SMALL).plan.model_copy(update={"defaults": ()})
    with pytest.raises(BadInputError, match="lack backward of stage 0"):
        pipeline_overview(plan)


def test_mean_clock_is_over_time_where_times_are_known():
    def way(*clocks):
        return Way(stage=0, instruction="forward", clocks=clocks, time_s=1.0, energy_j=1.0)

    slow, fast = {"core_mhz": 1000.0, "kernels": 3}, {"core_mhz": 2000.0, "kernels": 1}
    assert mean_core_mhz(way(Clocks(**slow), Clocks(**fast))) == 1250.0
    assert mean_core_mhz(way(Clocks(**slow, time_s=0.2), Clocks(**fast, time_s=0.6))) == 1750.0
    assert mean_core_mhz(way(Clocks(**slow), Clocks(core_mhz=None))) is None


def test_merged_stages_have_the_work_of_both():
    profile = small_profile(4)
    merged = merged_stages(profile, 2)
    assert merged.stages == 2
    for (stage, name), (time_s, energy_j) in merged.baseline.items():
        own = [profile.baseline[2 * stage + index, name] for index in (0, 1)]
        assert (time_s, energy_j) == pytest.approx(tuple(np.sum(own, axis=0)))
        assert len(merged.ways[stage, name].pareto()) == len(profile.ways[0, name].pareto())


def test_the_last_stage_is_longer_and_the_work_is_the_same():
    profile = with_last_stage(small_profile(4), 0.3)
    took = np.zeros(4)
    for (stage, _), (time_s, _) in profile.baseline.items():
        took[stage] += time_s
    assert took[3] / took.mean() == pytest.approx(1.3) and np.ptp(took[:3]) == pytest.approx(0.0, abs=1e-12)
    total = sum(time_s for time_s, _ in small_profile(4).baseline.values())
    assert took.sum() == pytest.approx(total)


def test_savings_of_the_own_shape_are_the_plans():
    made = planned(micro_batches=4)
    with hastily():
        found = savings_by_shape(made.profile, made.schedule)
    own = [each for each in (*found.micro_batches, *found.stages) if each.own]
    assert [each.value for each in own] == [4, 4]
    assert all(each.saved == pytest.approx(-made.plan.energy_change, abs=2e-3) for each in own)
    assert [each.value for each in found.stages] == [2, 4]
    assert found.imbalance[-1].saved > found.imbalance[0].saved > 0.0


def test_a_schedule_of_ones_own_has_no_other_micro_batches():
    made = planned(micro_batches=4)
    own = build_schedule("1f1b", ranks=4, micro_batches=4)
    with hastily():
        found = savings_by_shape(made.profile, type(own)("my-own", own.stages, own.micro_batches, own.ranks))
    assert found.micro_batches == found.stages == () and len(found.imbalance) == 5
