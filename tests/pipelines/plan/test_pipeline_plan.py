"""Plans of pipelines: what they promise, their frontier, stragglers, and the document that is read again."""

import json
import math
import time
from itertools import count, pairwise

import numpy as np
import pytest

import wastenot as wn
from testbed.pipeline_profiles import WAITING_W, write_profile
from testbed.small_pipelines import ONE_BY_ONE, hastily
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.graph import Graph
from wastenot.frontiers.graph_rounding import Effort
from wastenot.pipelines.model.schedules import build_schedule
from wastenot.pipelines.plan.frontier_table import frontier_csv, frontier_rows
from wastenot.pipelines.plan.overview import pipeline_overview
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.plan.straggler import Rungs
from wastenot.planning.switching import switch_time

MICRO_BATCHES = 5


@pytest.fixture(scope="module", autouse=True)
def _hastily():
    with hastily():
        yield


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    return write_profile(tmp_path_factory.mktemp("pipeline") / "small.csv")


@pytest.fixture(scope="module")
def made(profile):
    return wn.pipeline(
        profile, cut=wn.StageOptions(waiting_w=WAITING_W), micro_batches=MICRO_BATCHES, switch_time_s=0.0, frontier=10
    )


def test_what_is_saved_costs_no_time_and_the_bound_is_close(made):
    plan = made.plan
    assert plan.predicted.time_s <= plan.baseline.time_s == plan.within_s
    assert -0.5 < plan.energy_change < -0.02
    assert plan.lower_bound_j <= plan.predicted.energy_j and 0.0 <= plan.gap < 0.01
    assert (plan.origin, plan.baseline_clocks, plan.gpus) == ("measured", "highest", 4)
    by_rank = [sum(plan.ways[way].time_s for way, _ in rank.instructions) for rank in plan.ranks]
    waiting_s = 4 * plan.predicted.time_s - sum(by_rank)
    energy_j = sum(plan.ways[way].energy_j for rank in plan.ranks for way, _ in rank.instructions)
    assert plan.predicted.energy_j == pytest.approx(energy_j + WAITING_W * waiting_s, rel=1e-12)


def test_a_slowdown_that_is_allowed_saves_more(profile, made):
    slower = wn.pipeline(
        profile,
        cut=wn.StageOptions(waiting_w=WAITING_W),
        goal=wn.PipelineGoal(max_slowdown=0.1),
        micro_batches=MICRO_BATCHES,
        switch_time_s=0.0,
    ).plan
    assert made.plan.baseline.time_s < slower.predicted.time_s <= 1.1 * made.plan.baseline.time_s
    assert slower.energy_change < made.plan.energy_change - 0.01


def test_the_last_stage_is_the_slowest_and_stays_at_full_clocks(made):
    overview = pipeline_overview(made.plan)
    time_s, energy_j = np.zeros((2, 4)), np.zeros((2, 4))
    for row, boxes in enumerate((overview.before.boxes, overview.after.boxes)):
        for box in boxes:
            if box.clocks:
                time_s[row, box.stage] += box.time_s
                energy_j[row, box.stage] += box.energy_j
    last = [box for box in overview.after.boxes if box.stage == 3 and box.clocks]
    assert {box.core_mhz for box in last} == {1410.0} and all(box.critical for box in last)
    assert (time_s[1] > time_s[0]).tolist() == (energy_j[1] < energy_j[0]).tolist() == [True, True, True, False]
    assert energy_j[1, 3] == energy_j[0, 3]
    path = made.graph.critical_path(made.solved)
    assert made.solved.part_time_s[path].sum() == pytest.approx(made.solved.time_s, rel=1e-9)


def test_the_frontier_goes_from_the_fastest_to_the_least_energy_and_on_for_stragglers(made):
    rows, rungs = frontier_rows(made.plan), made.plan.rungs
    assert len(rows) == 11 < len(rungs) and made.plan.predicted.energy_j in [row.energy_j for row in rows]
    energies = [row.energy_j for row in rows]
    assert energies == sorted(energies, reverse=True)
    assert all(row.lower_bound_j <= row.energy_j * (1 + 1e-9) for row in rows)
    # While all wait, only what is above waiting counts, and that falls to the last rung.
    above = [rung.energy_j - made.plan.waiting_w * made.plan.gpus * rung.time_s for rung in rungs]
    assert all(later <= 1.001 * earlier for earlier, later in pairwise(above))
    assert above[-1] < 0.98 * above[9]
    assert len(frontier_csv(made.plan).splitlines()) == 12


@pytest.mark.parametrize("slower", [0.05, 3.0])
def test_a_straggler_leaves_time_that_saves(profile, made, slower):
    plan = wn.pipeline(
        profile,
        cut=wn.StageOptions(waiting_w=WAITING_W),
        goal=wn.PipelineGoal(straggler=slower),
        micro_batches=MICRO_BATCHES,
        switch_time_s=0.0,
    ).plan
    until_s = made.plan.baseline.time_s * (1.0 + slower)
    assert plan.until_s == pytest.approx(until_s)
    assert plan.predicted.time_s <= plan.until_s * (1 + 1e-12)
    waits_j = made.plan.baseline.energy_j + 4 * WAITING_W * (until_s - made.plan.baseline.time_s)
    assert plan.baseline.energy_j == pytest.approx(waits_j)
    assert plan.predicted.energy_j < made.plan.predicted.energy_j + 4 * WAITING_W * (until_s - made.plan.predicted.time_s)
    rung = made.plan.rungs[Rungs(made.plan).within(until_s)]
    looked_up = rung.energy_j + 4 * WAITING_W * (until_s - rung.time_s)
    assert plan.predicted.energy_j * (1 - 1e-3) <= looked_up <= 1.03 * plan.predicted.energy_j
    same = wn.pipeline(
        profile,
        cut=wn.StageOptions(waiting_w=WAITING_W),
        goal=wn.PipelineGoal(straggler_s=plan.until_s),
        micro_batches=MICRO_BATCHES,
        switch_time_s=0.0,
    ).plan
    assert same.predicted.energy_j == pytest.approx(plan.predicted.energy_j, rel=1e-3)


@pytest.mark.parametrize("schedule", ONE_BY_ONE)
def test_every_schedule_is_planned(profile, schedule):
    plan = wn.pipeline(
        profile, cut=wn.StageOptions(waiting_w=WAITING_W), micro_batches=MICRO_BATCHES, switch_time_s=0.0, schedule=schedule
    ).plan
    assert plan.predicted.time_s <= plan.baseline.time_s and plan.energy_change < 0.0
    assert len(plan.ranks) == (2 if schedule == "interleaved" else 4)
    assert plan.gap < 0.03


def test_the_document_goes_round(made, tmp_path):
    path = tmp_path / "pipeline.json"
    made.plan.write(path)
    assert wn.read_pipeline_plan(path) == made.plan
    assert max(map(len, path.read_text().splitlines())) > 150  # lists of numbers stand on one line
    solved = PlanGraph(made.plan).timed
    assert solved.time_s == made.solved.time_s and np.array_equal(solved.start_s, made.solved.start_s[: len(solved.start_s)])


def edited(made, tmp_path, edit):
    """The error about a document that was edited, digest and all."""
    document = made.plan.document()
    edit(document)
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document, indent=2))
    with pytest.raises(wn.BadInputError) as caught:
        wn.read_pipeline_plan(path)
    assert "\n" not in str(caught.value) and "edited.json:" in str(caught.value)
    return str(caught.value)


def _way(number):
    def edit(document):
        document["ranks"][1]["instructions"][2][0] = number

    return edit


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda plan: plan.update(name="other"), "digest: does not match"),
        (lambda plan: plan["ways"][0]["clocks"][0].update(core_mhz=1200.0), "digest: does not match"),
        (lambda plan: plan["predicted"].update(energy_j=1.0), "predicted.energy_j: is 1.0 but the instructions give"),
        (lambda plan: plan["predicted"].update(time_s=1.0), "predicted.time_s"),
        (lambda plan: plan["rungs"][0].update(energy_j=1.0), "rungs.0.energy_j"),
        (lambda plan: plan["rungs"][1].update(time_s=0.1), "rungs.1.time_s"),
        (lambda plan: plan["rungs"][1]["ways"].pop(), "rungs.1.ways: does not have the instructions"),
        (lambda plan: plan["rungs"][1]["ways"][0].__setitem__(0, 9999), "is 9999, where ways are 0 to"),
        (_way(9999), "takes way 9999"),
        (lambda plan: plan["ranks"][1]["instructions"][2].__setitem__(1, 5), "micro-batch 5, where these are 0 to 4"),
        (lambda plan: plan["ways"][0].update(stage=4), "ways.0.stage: is 4"),
        (lambda plan: (plan["rungs"].clear(), plan["ranks"][0]["instructions"].pop()), "lacks"),
        (lambda plan: (plan["rungs"].clear(), plan["ranks"][0]["instructions"].reverse()), "waits for"),
        (lambda plan: plan["ranks"][0]["instructions"].reverse(), "rungs.0.ways.0.0: is a forward"),
        (lambda plan: plan.update(waiting_w=-1.0), "waiting_w"),
        (lambda plan: plan["ways"][0].update(time_s=math.nan), "ways.0.time_s: Input should be a finite number"),
        (lambda plan: plan.update(more=1), "more"),
        (lambda plan: plan.update(schema="wastenot.plan/1"), "this version reads 'wastenot.pipeline/1'"),
        (lambda plan: plan.update(ranks=[]), "ranks"),
    ],
)
def test_an_edited_document_is_refused_in_one_line(made, tmp_path, edit, says):
    assert says in edited(made, tmp_path, edit)


def test_degrees_multiply_energies(profile, made):
    plan = wn.pipeline(
        profile,
        cut=wn.StageOptions(waiting_w=WAITING_W, replicas=4),
        micro_batches=MICRO_BATCHES,
        switch_time_s=0.0,
        tensor_parallel=8,
    ).plan
    assert (plan.gpus, plan.replicas) == (32, 4)
    assert plan.baseline.energy_j == pytest.approx(8 * made.plan.baseline.energy_j)


def test_errors_name_arguments(profile):
    with pytest.raises(wn.BadInputError, match=r"^straggler, straggler_s: give one of them"):
        wn.pipeline(
            profile,
            cut=wn.StageOptions(waiting_w=70.0),
            goal=wn.PipelineGoal(straggler=0.1, straggler_s=9.0),
            micro_batches=MICRO_BATCHES,
        )
    with pytest.raises(wn.BadInputError, match=r"^what does the pipeline run\?"):
        wn.pipeline(micro_batches=MICRO_BATCHES, stages=4)
    with pytest.raises(wn.BadInputError, match=r"^device: on which device are the kernels of gpt3-xl to be measured"):
        wn.pipeline("gpt3-xl", micro_batches=MICRO_BATCHES, stages=4)


def test_settings_last_as_long_as_switching_takes_unless_told_otherwise(profile):
    def planned(**options):
        return wn.pipeline(profile, cut=wn.StageOptions(waiting_w=WAITING_W), micro_batches=MICRO_BATCHES, **options).plan

    free, default, known = planned(switch_time_s=0.0), planned(), planned(device="A100")
    assert (free.switching, free.free) == (None, None)
    assert default.switching == switch_time("unknown GPU") and default.switching.basis == "assumed"
    assert known.switching == switch_time("A100") and known.device == "A100"
    assert default.free == known.free == free.predicted
    assert default.free_energy_change == free.energy_change == free.free_energy_change
    assert free.energy_change < known.energy_change < default.energy_change < 0.0
    assert planned(switch_time_s=0.1).predicted == default.predicted
    with pytest.raises(wn.BadInputError, match="switch_time_s -1: must be"):
        planned(switch_time_s=-1)


@pytest.mark.parametrize("switch_time_s", [0.0, 0.03])
def test_a_plan_is_the_same_on_a_machine_of_any_speed(profile, monkeypatch, switch_time_s):
    def planned():
        return wn.pipeline(
            profile, cut=wn.StageOptions(waiting_w=WAITING_W), micro_batches=4, switch_time_s=switch_time_s, frontier=3
        ).plan

    here, moment_s = planned().to_json(), count(step=1000)
    for clock in ("monotonic", "perf_counter", "time", "process_time"):
        monkeypatch.setattr(time, clock, lambda: float(next(moment_s)))
    assert planned().to_json() == here
    assert "time_limit_s" not in here


def test_a_time_limit_ends_the_search_and_is_written(profile, tmp_path):
    given = {"micro_batches": MICRO_BATCHES, "cut": wn.StageOptions(waiting_w=WAITING_W), "switch_time_s": 0.0}
    plan, free = (
        wn.pipeline(profile, goal=wn.PipelineGoal(time_limit_s=1e-6), **given).plan,
        wn.pipeline(profile, **given).plan,
    )
    assert plan.time_limit_s == 1e-6 and plan.predicted.energy_j >= free.predicted.energy_j
    plan.write(tmp_path / "plan.json")
    assert wn.read_pipeline_plan(tmp_path / "plan.json") == plan
    written = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(written.replace('"time_limit_s": 1e-06', '"time_limit_s": -1'))
    with pytest.raises(wn.BadInputError, match="time_limit_s"):
        wn.read_pipeline_plan(tmp_path / "plan.json")
    with pytest.raises(wn.BadInputError, match="time_limit_s 0: must be above 0"):
        wn.pipeline(profile, goal=wn.PipelineGoal(time_limit_s=0.0), **given)


def test_plans_from_before_switching_was_noted_keep_their_digest(made, tmp_path):
    plan = made.plan
    document = plan.document()
    del document["switching"], document["free"]
    (tmp_path / "old.json").write_text(json.dumps(document))
    assert wn.read_pipeline_plan(tmp_path / "old.json") == plan


def test_arguments_that_a_profile_settles_are_refused(profile):
    held = wn.pipeline(profile, cut=wn.StageOptions(waiting_w=WAITING_W), micro_batches=2, switch_time_s=0.0).profile
    for name, says in (("max_slowdown", "there is no such argument"), ("batch", "has no effect on a profile")):
        with pytest.raises(wn.BadInputError, match=says):
            wn.pipeline(held, micro_batches=2, **{name: 1})


def test_a_schedule_without_early_recomputation_recomputes_in_backward():
    order = build_schedule("1f1b", ranks=2, micro_batches=2)
    assert wn.StageOptions(recomputation="early").run_by(order).recomputation == "full"
    assert wn.StageOptions().run_by(order).recomputation == "none"


def test_ways_between_which_energy_falls_in_one_step_are_reached():
    """The last of many ways saves most, so that only it and the fastest are worth much; it is far from any other."""

    def stepped(time_s):
        between = [(time_s * (1.0 + 0.006 * step), 60.0 - 0.5 * step) for step in range(15)]
        return choice([*between, (time_s * 1.1, 40.0)])

    schedule = build_schedule("1f1b", ranks=4, micro_batches=12)
    graph = Graph(
        [stepped(time_s) for stage in range(4) for time_s in (0.1 + 0.001 * stage, 0.2 + 0.002 * stage)],
        np.array([2 * each.stage + (each.name == "backward") for each in schedule.instructions]),
        schedule.edges(),
        worker=schedule.rank,
        waiting_w=np.full(4, 70.0),
    )
    plan = graph.least_energy(1.03 * graph.least_time().time_s, effort=Effort(steps=2_000))
    assert plan.gap < 0.025
