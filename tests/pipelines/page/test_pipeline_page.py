"""The page of a pipeline's plan: figures show the plan's numbers, in every state, and it loads nothing."""

import json
import re
from datetime import UTC, datetime

import pytest

from testbed.drawn_sweeps import NASTY
from testbed.small_pipelines import ONE_BY_ONE, hastily, planned
from wastenot.pages.figure import export_figures
from wastenot.pages.narrow import NARROW_WIDTH
from wastenot.pipelines.page.clocks_figure import clocks_figure
from wastenot.pipelines.page.energy_figure import energy_figure
from wastenot.pipelines.page.frontier_figure import frontier_figure
from wastenot.pipelines.page.page import (
    pipeline_figures,
    pipeline_page,
)
from wastenot.pipelines.page.savings_figure import savings_figure
from wastenot.pipelines.page.schedule_figure import clock_color, schedule_figure
from wastenot.pipelines.page.story import story_of
from wastenot.pipelines.plan.overview import OthersPoints, pipeline_overview
from wastenot.pipelines.plan.savings import savings_by_shape

MADE = datetime(2026, 1, 2, tzinfo=UTC)
SMALL = {"ranks": 2, "micro_batches": 4}
STATES = {
    **{name: {"schedule": name} | SMALL for name in ONE_BY_ONE if name != "gpipe"},  # which looks as 1f1b does
    "dualpipe": {"schedule": "dualpipe"} | SMALL,
    "auto": {"auto": True, "rungs": 4} | SMALL,
    "fixed": {"fixed": True, "gpus": 8} | SMALL,
    "straggler": {"straggler": 0.3, "rungs": 6, "fixed": True, "name": NASTY} | SMALL,
    "long": {"ranks": 2, "micro_batches": 64, "gpus": 4},
    "one rank": {"ranks": 1, "micro_batches": 2},
}
WITH_RUNGS = {"rungs": 4} | SMALL


def plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


def rows_with(figure, *fields):
    return [row for rows in figure.specification["datasets"].values() for row in rows if set(fields) <= set(row)]


def figure_of(overview, name):
    draw = {
        "pipeline-schedule": schedule_figure,
        "pipeline-energy": energy_figure,
        "pipeline-frontier": frontier_figure,
        "pipeline-clocks": clocks_figure,
        "pipeline-savings": savings_figure,
    }
    return draw[name](overview)


FAST = ("early-recomputation", "straggler")  # what a long one looks like is judged below


@pytest.mark.parametrize(
    "state", [state if state in FAST else pytest.param(state, marks=pytest.mark.slow) for state in STATES]
)
def test_every_state_has_a_page(state):
    plan = planned(**STATES[state]).plan
    overview = pipeline_overview(plan)
    page = pipeline_page(overview).html(made_at=MADE)
    assert '<div class="badge simulated"' in page and plan.digest in page
    assert not re.search(r"""(?:src|href|action)\s*=\s*["']?https?:""", page)
    assert "<b onload" not in page
    figures = json.loads(re.search(r'id="specifications">(.*?)</script>', page, re.S)[1])["figures"]
    drawn = set(figures) - {"pipeline-frontier"}
    several = len({each.core_mhz for each in overview.clocks} - {None}) > 1  # one clock is no figure
    expected = {"pipeline-schedule", "pipeline-energy"}
    assert drawn == expected | ({"pipeline-clocks"} if several else set())
    assert all(set(forms) == {"wide", "narrow"} for forms in figures.values())


@pytest.mark.parametrize("state", ["interleaved", "zb-h1", "straggler"])
def test_boxes_are_the_plans_instructions(state):
    overview = pipeline_overview(planned(**STATES[state]).plan)
    rows = rows_with(figure_of(overview, "pipeline-schedule"), "r", "m", "k")
    factor = 1e3 if max(overview.before.lasts_s, overview.after.lasts_s) < 1.0 else 1.0
    told = sorted(
        (box.rank, box.micro_batch, round(factor * box.begin_s, 6), round(factor * box.end_s, 6))
        for line in (overview.before, overview.after)
        for box in line.boxes
    )
    assert sorted((row["r"], row["m"], row["x"], row["x2"]) for row in rows) == told


def test_clocks_in_the_figure_are_the_plans():
    overview = pipeline_overview(planned(**SMALL).plan)
    schedule = figure_of(overview, "pipeline-schedule")
    kinds = rows_with(schedule, "what", "core")
    assert {row["core"] for row in kinds} == {
        box.core_mhz for line in (overview.before, overview.after) for box in line.boxes
    }
    shares = rows_with(figure_of(overview, "pipeline-clocks"), "share")
    assert sum(row["share"] for row in shares) == pytest.approx(2 * 2)  # each stage's forwards and backwards
    assert len(schedule.specification["vconcat"]) == 2


def test_a_long_schedule_shows_its_beginning_middle_and_end():
    overview = pipeline_overview(planned(**STATES["long"]).plan)
    figure = figure_of(overview, "pipeline-schedule")
    titles = [panel["title"]["text"] for panel in figure.specification["vconcat"][0]["hconcat"]]
    assert titles == [["beginning"], ["middle"], ["end"]]
    assert len(rows_with(figure, "r", "m", "k")) < 0.95 * 2 * len(overview.after.boxes)
    assert figure.note.startswith("The schedule is long")


def test_bars_of_ranks_add_up_to_the_plan():
    overview = pipeline_overview(planned(**STATES["fixed"]).plan)
    rows = rows_with(figure_of(overview, "pipeline-energy"), "energy", "rank")
    for name, told in (("highest clocks", overview.plan.baseline), ("this plan", overview.plan.predicted)):
        own = [row["y2"] - row["y"] for row in rows if row["series"].startswith(name)]
        assert sum(own) == pytest.approx(told.energy_j, rel=1e-6)


def test_the_frontier_is_the_plans_rungs_with_their_bounds():
    plan = planned(**WITH_RUNGS).plan
    others = [OthersPoints("lowtime", ((plan.baseline.time_s * 1.1, plan.baseline.energy_j * 0.9),))]
    figure = figure_of(pipeline_overview(plan, others=others), "pipeline-frontier")
    rows = rows_with(figure, "series", "x", "y")
    factor = 1e3 if plan.baseline.time_s < 0.66 else 1.0
    found = [(row["x"], row["y"]) for row in rows if row["series"] == "plans"]
    assert sorted(set(found)) == sorted({(round(factor * r.time_s, 6), round(r.energy_j, 6)) for r in plan.rungs})
    bounds = {row["y"] for row in rows if row["series"] == "lower bound"}
    assert bounds == {round(rung.lower_bound_j, 6) for rung in plan.rungs}
    assert [row["y"] for row in rows if row["series"] == "lowtime"] == [round(plan.baseline.energy_j * 0.9, 6)]
    assert [row["y"] for row in rows if row["series"] == "this plan"] == [round(plan.predicted.energy_j, 6)]


def test_without_others_the_frontier_says_how_to_get_them():
    figure = figure_of(pipeline_overview(planned(**SMALL).plan), "pipeline-frontier")
    assert figure.specification is None and "--frontier" in figure.note


def test_savings_are_those_computed():
    made = planned(**SMALL)
    with hastily():
        savings = savings_by_shape(made.profile, made.schedule)
    figure = figure_of(pipeline_overview(made.plan, savings=savings), "pipeline-savings")
    rows = rows_with(figure, "own", "saved")
    parts = [
        part for part in (savings.micro_batches, savings.stages, savings.imbalance) if len(part) > 2
    ]  # that make a line
    assert sorted(row["y"] for row in rows) == sorted(round(100.0 * each.saved, 4) for part in parts for each in part)
    assert "a forecast" in figure.note


def test_the_headline_says_what_is_saved_at_which_slowdown_and_how_it_is_known():
    plan = planned(**SMALL).plan
    tone, effect, verdict, panels = story_of(pipeline_overview(plan))
    assert tone == "promised"
    assert plain(effect) == f"Expected to save {-100 * plan.energy_change:.1f} % of the energy, no slower"
    most = 100 * max(1.0 - plan.lower_bound_j / plan.baseline.energy_j, -plan.energy_change)
    assert plain(verdict) == "on a simulated GPU"
    assert plain(panels[2].lines[0].text).startswith(f"{most:.1f} %: ")
    assert [panel.title for panel in panels] == ["Energy of an iteration", "GPUs wait", "Least energy possible"]
    assert plain(panels[0].value) == f"{-100 * plan.energy_change:.1f} % saved" and panels[1].text.startswith("instead of")
    straggling = story_of(pipeline_overview(planned(straggler=0.25, **SMALL).plan))
    assert plain(straggling[1]).endswith("while another pipeline is 25.0 % slower")


def test_figures_fit_a_narrow_page_and_are_written_as_files(tmp_path, svg_only):
    drawn = pipeline_figures(pipeline_overview(planned(**WITH_RUNGS).plan))
    for figure in drawn:
        widths = re.findall(r'"width": (\d+)', json.dumps(figure.narrow))
        assert widths and all(int(width) <= NARROW_WIDTH for width in widths)
    files = export_figures(drawn, "simulated", tmp_path)
    assert len(files) == 4 * 3 and all(path.stat().st_size > 1_000 for path in files if path.suffix == ".svg")


@pytest.mark.parametrize(
    ("ranks", "micro_batches", "most_bytes"),
    [(8, 96, 500_000), pytest.param(16, 256, 1_000_000, marks=pytest.mark.slow)],
)
def test_pages_of_big_schedules_stay_light(ranks, micro_batches, most_bytes):
    page = pipeline_page(pipeline_overview(_at_defaults(ranks, micro_batches))).html(made_at=MADE)
    specifications = re.search(r'id="specifications">(.*?)</script>', page, re.S)[1]
    assert len(specifications.encode()) < most_bytes
    found = json.loads(specifications)
    shown = set(re.findall(r'"(data-\w+)"', json.dumps(found["figures"]["pipeline-schedule"]["wide"])))
    boxes = [row for name in shown for row in found["datasets"][name] if {"r", "m", "k"} <= set(row)]
    assert 0 < len(boxes) <= 2 * 3 * 1_300


def _at_defaults(ranks, micro_batches):
    """A large plan, without solving: that of a small one, longer."""
    from wastenot.pipelines.model.schedules import build_schedule
    from wastenot.pipelines.plan.plan import Iteration, RankPlan
    from wastenot.pipelines.plan.rank_steps import PlanGraph

    plan = planned(ranks=ranks, micro_batches=2).plan
    place = {(way.stage, way.instruction): index for index, way in enumerate(plan.ways)}
    schedule = build_schedule("1f1b", ranks=ranks, micro_batches=micro_batches)
    longer = tuple(
        RankPlan(instructions=tuple((place[each.stage, each.name], each.micro_batch) for each in rank))
        for rank in schedule.ranks
    )
    made = plan.model_copy(update={"micro_batches": micro_batches, "ranks": longer})
    timed = PlanGraph(made).timed
    whole = Iteration(time_s=timed.time_s, energy_j=timed.energy_j)
    return made.model_copy(update={"baseline": whole, "predicted": whole, "lower_bound_j": timed.energy_j})


@pytest.mark.slow
@pytest.mark.parametrize("state", ["interleaved", "straggler", "long"])
@pytest.mark.system
def test_the_page_opens_without_errors_and_fits(state, tmp_path, browse, too_wide):
    made = planned(**STATES[state])
    page = tmp_path / "page.html"
    pipeline_page(pipeline_overview(made.plan, savings=savings_by_shape(made.profile, made.schedule))).write(page)
    opened = browse(page)
    assert opened.errors == "" and set(opened.charts.values()) == {1}
    assert not [each for each in opened.addresses if each.startswith("http")]
    assert too_wide(page, 420) == "420 px wide: all fits"


def test_a_plan_with_one_clock_says_it_once_and_colours_it_so_that_numbers_can_be_read():
    overview = pipeline_overview(planned(**SMALL).plan)
    scale = clock_color((1530.0, 1530.0)).to_dict()["scale"]["domain"]
    assert scale[0] < 1530.0 < scale[1] and clock_color((1200.0, 1530.0)).to_dict()["scale"]["domain"] == [1200.0, 1530.0]
    assert (
        f"-- torchrun --nproc-per-node {overview.plan.gpus * overview.plan.replicas} train.py"
        in pipeline_page(overview).next_step.commands[0]
    )
