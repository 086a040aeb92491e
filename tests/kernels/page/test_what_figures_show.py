"""What the figures of a plan's report show: directions, steps, intervals, and that nothing is left out silently."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pytest

from testbed.drawn_sweeps import make_sweep
from wastenot.kernels.page.curve_figure import curve_figure, switching_figure
from wastenot.kernels.page.desirability_figure import desirability_figure
from wastenot.kernels.page.kernels_figure import MOST_BARS, kernels_figure
from wastenot.kernels.page.plan_figure import REACH, SAVED, SLOWDOWN
from wastenot.kernels.page.settings_figure import coarse_figure, kernel_figure
from wastenot.kernels.page.story import story_of
from wastenot.kernels.page.transfer_figure import transfer_figure
from wastenot.kernels.plan import curves
from wastenot.kernels.plan.overview import Levelling, make_overview
from wastenot.kernels.run.interleaved import Interval, Transfer, TransferRow
from wastenot.pages.figure import vega_lite_version
from wastenot.pages.formatting import change, percent
from wastenot.pages.narrow import NARROW_WIDTH
from wastenot.pages.optional_imports import load
from wastenot.pages.theme import LIGHT
from wastenot.planning.planner import Planner, plan
from wastenot.study.sweep import Kernel, Sweep

SPEED = re.compile(r"time saved|speed-?up|faster", re.I)


DRAW = {
    "relaxed-waste": curve_figure,
    "switching": switching_figure,
    "kernels": kernels_figure,
    "settings-coarse": coarse_figure,
    "settings-kernel": kernel_figure,
    "desirability": desirability_figure,
}


class Drawn(dict):
    """The figures of a report by name, each drawn once and only where it is looked at."""

    def __init__(self, overview):
        self.overview = overview

    def __missing__(self, name):
        self[name] = DRAW[name](self.overview)
        return self[name]

    def all(self):
        return [self[name] for name in DRAW]


_DRAWN = {}


def figures_of(overview):
    return _DRAWN.setdefault(id(overview), Drawn(overview))


def parts(specification):
    """Every object of a specification, without its data."""
    stack = [{key: value for key, value in specification.items() if key != "datasets"}]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            yield part
            stack += part.values()
        elif isinstance(part, list):
            stack += part


def titles(specification, channel):
    return {
        part[channel]["title"]
        for part in parts(specification)
        if isinstance(part.get(channel), dict) and part[channel].get("title") is not None
    }


def rows_with(specification, field):
    """The rows of all data sets that have a field."""
    return [row for rows in specification["datasets"].values() for row in rows if field in row]


def noisy_sweep(errors=True):
    """Four kernels in two passes on a grid of clocks, each energy and time with a standard error of its own."""
    kernels = [Kernel(f"kernel {index}", 1 + index, ("forward", "backward")[index // 2]) for index in range(4)]
    random = np.random.default_rng(3)
    core = np.array([np.nan, *np.tile([900.0, 1200.0, 1500.0, 1800.0], 2)])
    memory = np.array([np.nan, *np.repeat([5001.0, 9501.0], 4)])
    rows = len(core)
    clock = np.where(np.isnan(core), 1800.0, core) / 1800.0
    slow = np.where(memory == 5001.0, 1.02, 1.0)
    time = np.concatenate([(1e-3 * (1 + index)) * (0.4 + 0.6 / clock) * slow for index in range(4)])
    energy = np.concatenate([0.2 * (1 + index) * (0.5 + 0.5 * clock**2) * (0.4 + 0.6 / clock) / slow for index in range(4)])
    scatter = 1.0 + 0.002 * random.standard_normal((2, len(time)))
    absent = np.full(len(time), np.nan)
    return Sweep(
        tuple(kernels),
        np.repeat(np.arange(4), rows),
        np.tile(core, 4),
        np.tile(memory, 4),
        absent,
        time * scatter[0],
        energy * scatter[1],
        0.002 * time if errors else absent,
        0.002 * energy if errors else absent,
        absent,
        absent,
        absent,
        absent,
        workload="noisy",
        device="a device",
        origin="simulated",
    )


def rough_overview(sweep, made):
    """The overview, its curves known to within half a per cent only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "STEP", 0.005)
        return make_overview(sweep, made)


@pytest.fixture(scope="module")
def noisy():
    sweep = noisy_sweep()
    return rough_overview(sweep, plan(sweep, max_slowdown=0.02))


@pytest.fixture(scope="module")
def by_iteration(coarse_sweep):
    return rough_overview(coarse_sweep, plan(coarse_sweep, granularity="iteration", as_measured=True))


# ---- directions ------------------------------------------------------------------------------------------------------


def test_slowdown_is_to_the_right_and_energy_saved_upward(coarse, noisy):
    for overview in (coarse, noisy):
        for figure in figures_of(overview).all():
            for specification in (figure.specification, figure.narrow):
                across, up = titles(specification, "x"), titles(specification, "y")
                assert not any(SPEED.search(title) for title in across | up)
                assert not any(part.get("sort") == "descending" or part.get("reverse") for part in parts(specification))
                if figure.name != "kernels":
                    assert up == {SAVED}
                    names = {"relaxed-waste": "slowdown limit, %", "switching": "switching time"}
                    assert across == {names.get(figure.name, SLOWDOWN)}


def test_a_slower_setting_is_drawn_on_the_right_and_a_saving_one_above(coarse):
    each = coarse.coarse_maps[0]
    drawn = {row["time_text"]: row for row in rows_with(figures_of(coarse)["settings-coarse"].specification, "clocks")}
    for point in each.points:
        row = drawn.get(change(point.time_change))
        if row is not None and "slower" in row:
            assert row["slower"] == pytest.approx(100 * point.time_change, abs=0.006)


def test_the_plan_of_the_edp_map_is_where_it_is_slower(noisy):
    headline = noisy.plan.headline
    (row,) = [row for row in rows_with(figures_of(noisy)["desirability"].specification, "who") if row["who"] == "this plan"]
    assert (row["x"], row["y"]) == pytest.approx((100 * headline.time_change, -100 * headline.energy_change))
    cells = rows_with(figures_of(noisy)["desirability"].specification, "score")
    assert max(cells, key=lambda cell: cell["score"])["x"] < 0 < max(cells, key=lambda cell: cell["score"])["y"]


# ---- the curve -------------------------------------------------------------------------------------------------------


def test_curves_are_drawn_as_steps_and_never_fall(coarse, noisy, cases):
    for overview in (coarse, noisy, cases["pass plan"]()):
        figure = figures_of(overview)["relaxed-waste"]
        for specification in (figure.specification, figure.narrow):
            marks = [part["mark"] for part in parts(specification) if isinstance(part.get("mark"), dict)]
            lines = [mark for mark in marks if mark["type"] == "line"]
            assert lines and all(line["interpolate"] == "step-after" for line in lines)
        for curve in overview.curves:
            energies = [point.energy_j for point in curve.points[:-1]]
            assert all(later < earlier for earlier, later in pairwise(energies))


def test_every_granularity_has_a_curve(coarse, cases):
    assert [(curve.granularity, curve.scope) for curve in coarse.curves] == [
        ("kernel", "global"), ("kernel", "local"), ("pass", "global"), ("pass", "local"), ("iteration", "global"),
    ]  # fmt: skip
    alone = cases["one setting"]()
    assert [(curve.granularity, curve.scope) for curve in alone.curves] == [("kernel", "global")]


def test_an_exact_curve_has_its_steps_where_plans_become_possible(coarse_sweep, coarse):
    curve = next(curve for curve in coarse.curves if curve.granularity == "iteration")
    assert curve.exact
    units = Planner(coarse_sweep, "iteration").units
    time, energy = units[0].time_s / units[0].time_s[0] - 1, units[0].energy_j / units[0].energy_j[0] - 1
    for bound in np.linspace(-0.02, 0.2, 45):
        possible = energy[time <= bound]
        steps = [point for point in curve.points if point.max_slowdown <= bound]
        if not len(possible):
            assert not steps
        elif steps and abs(time - bound).min() > 0.001:  # away from a step, whose place is known to within 0.05 %
            assert steps[-1].energy_change == pytest.approx(possible.min(), abs=1e-9)
    assert len(curve.points) > 1


def test_the_fastest_plan_is_in_view_and_labelled(coarse, noisy):
    for overview in (coarse, noisy):
        fine = overview.curves[0].fastest
        assert all(curve.fastest.time_change >= fine.time_change for curve in overview.curves)
        if overview.plan.granularity == "kernel":
            assert fine.time_change == pytest.approx(overview.plan.fastest.time_change)
        figure = figures_of(overview)["relaxed-waste"]
        for specification in (figure.specification, figure.narrow):
            rows = [row for row in rows_with(specification, "about") if row["about"].startswith("fastest plan")]
            assert [row["about"].rpartition(" ")[2] for row in rows] == ["kernel"]  # no coarser plan is faster
            (domain,) = {
                tuple(part["x"]["scale"]["domain"]) for part in parts(specification) if "scale" in part.get("x", {})
            }
            assert all(domain[0] < row["x"] < domain[1] for row in rows)
            texts = [row["text"] for row in rows_with(specification, "text")]
            less = f"Circle: the fastest plan, {percent(-fine.time_change)} less time."
            assert any(text.startswith("no plan is faster") for text in texts) != (less in figure.note)


def test_the_fastest_clocks_by_kernel_are_faster_than_by_iteration(by_iteration):
    assert by_iteration.curves[0].fastest.time_change < by_iteration.plan.fastest.time_change


def test_what_can_be_applied_today_is_marked(coarse_sweep, by_iteration):
    overview = rough_overview(coarse_sweep, plan(coarse_sweep, max_slowdown=0.05, as_measured=True))
    row = overview.plan.applicable.finest
    assert row is not None and row.granularity != "kernel" and row.energy_change < 0.0
    rows = rows_with(figures_of(overview)["relaxed-waste"].specification, "about")
    (mark,) = [each for each in rows if each["about"] == "applicable today"]
    best = overview.plan.schedule.rungs[0]
    assert best.switches > 0 and best.energy_change < row.energy_change
    assert mark["y"] == pytest.approx(-100 * best.energy_change)
    texts = [each["text"] for each in rows_with(figures_of(by_iteration)["relaxed-waste"].specification, "text")]
    assert any(text.startswith("this plan, applicable today: ") for text in texts)


# ---- intervals -------------------------------------------------------------------------------------------------------


def test_intervals_are_drawn_where_the_data_has_errors(noisy):
    point = noisy.kernel_maps[0].points[0]
    assert point.time_error is not None and point.smooth_time_change is not None
    maps = figures_of(noisy)["settings-kernel"]
    bars = rows_with(maps.specification, "left")
    assert bars and all(bar["left"] <= bar["slower"] <= bar["right"] and bar["low"] < bar["high"] for bar in bars)
    widest = max(100 * REACH * each.energy_error for one in noisy.kernel_maps for each in one.points)
    assert max(bar["high"] - bar["low"] for bar in bars) <= 2 * widest + 1e-3
    assert "95 % intervals" in maps.note and "corrected for noise" in maps.note
    headline = noisy.plan.headline
    across = [row for row in rows_with(figures_of(noisy)["relaxed-waste"].specification, "x2") if "y" in row]
    assert [row["x2"] for row in across] == [pytest.approx(100 * headline.time_change_interval[1])]
    moved = [
        row for row in rows_with(figures_of(noisy)["kernels"].specification, "saved_from") if row["clocks"] != "default"
    ]
    assert moved and all(row["saved_from"] < row["saved"] < row["saved_to"] for row in moved)


def test_maps_say_why_lines_lie_below_points_that_were_measured_cold(noisy):
    assert noisy.levelling is None
    warm = replace(noisy, levelling=Levelling(74.4, 33.0))
    for name in ("settings-coarse", "settings-kernel"):
        assert "°C" not in figures_of(noisy)[name].note
        assert "corrected for noise and to 74 °C, the temperature at the default clocks" in figures_of(warm)[name].note
        assert "(down to 33 °C)" in figures_of(warm)[name].note


def test_no_intervals_are_drawn_where_it_has_none():
    sweep = noisy_sweep(errors=False)
    overview = rough_overview(sweep, plan(sweep, max_slowdown=0.02, as_measured=True))
    figures = figures_of(overview)
    for name in ("settings-kernel", "settings-coarse"):
        assert not rows_with(figures[name].specification, "left")
        assert "95 %" not in figures[name].note and "noise included" in figures[name].note
    assert not rows_with(figures["relaxed-waste"].specification, "x2")
    assert all(row["saved_from"] == row["saved_to"] for row in rows_with(figures["kernels"].specification, "saved_from"))
    assert "interval" not in figures["kernels"].note


def test_the_error_of_a_setting_is_that_of_a_ratio_to_auto(noisy):
    costs = Planner(noisy_sweep()).costs
    for each in noisy.kernel_maps:
        index = int(each.name.rpartition(" ")[2])
        base, row = int(costs.start[index]), int(costs.start[index]) + 1
        ratio = costs.time_s[row] / costs.time_s[base]
        expected = ratio * np.hypot(costs.time_se_s[row] / costs.time_s[row], costs.time_se_s[base] / costs.time_s[base])
        assert each.points[0].time_error == pytest.approx(expected)


# ---- nothing is left out ---------------------------------------------------------------------------------------------


def test_all_settings_are_drawn_or_counted_as_not_shown(coarse, noisy, cases):
    for overview in (coarse, noisy, cases["extreme"]()):
        figures = figures_of(overview)
        for name, maps in (("settings-coarse", overview.coarse_maps[:4]), ("settings-kernel", overview.kernel_maps)):
            shown = [each for each in maps if name != "settings-coarse" or each.energy_fraction >= 0.005]
            for specification in (figures[name].specification, figures[name].narrow):
                # Altair writes equal data once: of maps with the same points one remains.
                drawn = {json.dumps(row) for row in rows_with(specification, "clocks")}
                counts = re.findall(r"([\d,]+) of [\d,]+ not shown", json.dumps(specification, ensure_ascii=False))
                assert len(drawn) + sum(map(int, counts)) == sum(len(each.points) for each in shown)


def test_what_only_instant_switching_would_give_says_so(coarse, by_iteration):
    assert story_of(coarse.plan, None).bound is not None and story_of(by_iteration.plan, None).bound is None
    for overview, said in ((coarse, True), (by_iteration, False)):
        figures = figures_of(overview)
        texts = (figures["kernels"].title, figures["settings-coarse"].note, figures["settings-kernel"].note)
        assert [("if switching were instant" in text) for text in texts] == [said] * 3


def test_the_legend_of_settings_holds_what_is_drawn(coarse, noisy):
    for overview in (coarse, noisy):
        figure = figures_of(overview)["settings-coarse"].specification
        colours = [
            part["color"]
            for part in parts(figure)
            if isinstance(part.get("color"), dict) and part["color"].get("field") == "memory"
        ]
        drawn = {row["memory"] for row in rows_with(figure, "memory")}
        assert colours and all(set(colour["scale"]["domain"]) == drawn for colour in colours)


def test_bars_are_by_joules_saved_and_hold_all_of_them(coarse, noisy):
    many = make_overview(make_sweep([Kernel(f"k{index}", 2) for index in range(MOST_BARS + 6)], 9))
    for overview in (many, coarse, noisy):
        figure = figures_of(overview)["kernels"]
        rows = max((rows for rows in figure.specification["datasets"].values() if "saved" in rows[0]), key=len)
        others = [row for row in rows if re.fullmatch(r"\d+ other kernels", row["kernel"])]
        own = [row["saved"] for row in rows if row not in others]
        assert own == sorted(own, reverse=True) and len(own) <= MOST_BARS + 1
        assert others == [] or others == rows[-1:]
        assert len(own) + sum(int(row["kernel"].split()[0]) for row in others) == len(overview.kernels)
        plan = overview.plan
        assert sum(row["saved"] for row in rows) == pytest.approx(plan.baseline.energy_j - plan.predicted.energy_j)
        (title,) = {
            part["x"]["title"]
            for part in parts(figure.specification)
            if part.get("x", {}).get("title", "").startswith("time added")
        }
        factor = {"s": 1.0, "ms": 1e3, "µs": 1e6}[title.rpartition(" ")[2]]
        added_s = plan.predicted.time_change * plan.baseline.time_s
        assert sum(row["added"] for row in rows) == pytest.approx(factor * added_s, abs=1e-9)
        assert bool(others) == ("other" in figure.note)


def test_clocks_are_core_before_memory(noisy):
    rows = [
        row for name in ("settings-kernel", "kernels") for row in rows_with(figures_of(noisy)[name].specification, "clocks")
    ]
    clocks = {row["clocks"] for row in rows if "/" in row["clocks"]}
    assert clocks and all(re.fullmatch(r"(900|1,200|1,500|1,800) / (5,001|9,501)", each) for each in clocks)


def test_smaller_passes_are_named_with_their_energy():
    kernels = [Kernel(f"k{index}", 1, f"pass {index}") for index in range(7)]
    overview = make_overview(make_sweep(kernels, 9))
    note = figures_of(overview)["settings-coarse"].note
    left_out = overview.coarse_maps[4:]
    assert left_out and all(each.name in note for each in left_out) and "of the energy in total" in note


# ---- narrow pages ----------------------------------------------------------------------------------------------------


@cache
def width_of(specification):
    svg = load("vl_convert").vegalite_to_svg(json.loads(specification), vl_version=vega_lite_version(), config=LIGHT)
    return float(re.search(r'<svg[^>]* width="([\d.]+)"', svg)[1])


SLOW = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "case", [SLOW("coarse"), SLOW("noisy"), "nasty names", SLOW("extreme"), SLOW("pass plan"), SLOW("many")]
)
def test_narrow_figures_fit_a_phone(case, request, cases):
    overview = request.getfixturevalue(case) if case in ("coarse", "noisy") else cases[case]()
    for figure in figures_of(overview).all():
        assert figure.narrow is not None
        assert width_of(json.dumps(figure.narrow)) <= NARROW_WIDTH, figure.name


def test_transfers_have_slowdown_to_the_right():
    def interval(mean):
        return Interval(mean=mean, low=mean - 0.002, high=mean + 0.002, least_pair=mean - 0.004, greatest_pair=mean + 0.005)

    rows = tuple(TransferRow(name, interval(0.01), interval(-0.08), 1.0, 100.0) for name in ("8", "40"))
    figure = transfer_figure(Transfer("gpt3-xl", "a device", "simulated", 5, rows), "x", "X", ("8", "40"), "batch size")
    for specification in (figure.specification, figure.narrow):
        assert titles(specification, "x") == {SLOWDOWN, SAVED}
        drawn = {row["what"]: (row["low"], row["value"], row["high"]) for row in rows_with(specification, "value")}
        assert drawn == {SLOWDOWN: pytest.approx((0.6, 1.0, 1.5)), SAVED: pytest.approx((7.5, 8.0, 8.4))}
    assert width_of(json.dumps(figure.narrow)) <= NARROW_WIDTH
