"""The page of natural clocks: what it shows is what was measured, and it says what that is."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from rich.console import Console

from testbed.natural_studies import natural_study
from wastenot.devices.timeline import Timeline
from wastenot.kernels.cli.natural import natural_text
from wastenot.kernels.natural.overview import Wake, natural_overview, wakes_in
from wastenot.kernels.natural.page.page import natural_figures, natural_page, story_of
from wastenot.kernels.natural.page.summary import forecast_table, kernels_table, plans_table


@pytest.fixture(scope="module")
def overview(tmp_path_factory):
    study = natural_study(tmp_path_factory.mktemp("natural") / "study.db")
    made = natural_overview(study, draws=40)
    since = np.linspace(0.0, 0.15, 60)
    return replace(made, wakes=(Wake("softmax", since, 1500.0 + 3000.0 * since),))


@pytest.fixture(scope="module")
def page(overview):
    return natural_page(overview).html(made_at=datetime(2026, 1, 2, tzinfo=UTC))


def specifications(page):
    found = re.search(r'<script type="application/json" id="specifications">(.*?)</script>', page, re.S)
    drawings = json.loads(found[1])
    return {
        name: {"datasets": {key: rows for key, rows in drawings["datasets"].items() if key in json.dumps(forms["wide"])}}
        for name, forms in drawings["figures"].items()
    }


def values(specification):
    """The data sets of a specification."""
    return list(specification["datasets"].values())


def test_the_figures_in_order(overview):
    assert [figure.name for figure in natural_figures(overview)] == [
        "natural-saving", "natural-curves", "natural-joules", "natural-losses", "natural-wake",
    ]  # fmt: skip
    for figure in natural_figures(overview):
        assert figure.specification is not None and "simulated numbers" in figure.subtitle


def test_curves_are_those_of_the_study(overview, page):
    rows = max((each for each in values(specifications(page)["natural-curves"]) if "mhz" in each[0]), key=len)
    curve = overview.curves["softmax"]
    own = [row for row in rows if row["kernel"] == "softmax"]
    clocks = np.array([row["mhz"] for row in own])
    assert clocks[0] == pytest.approx(curve.core_mhz[0]) and clocks[-1] == pytest.approx(curve.core_mhz[-1])
    at_auto = curve.time_at(min(curve.auto.core_mhz, curve.core_mhz[-1]))
    np.testing.assert_allclose([row["time"] for row in own], 100 * curve.time_at(clocks) / at_auto, rtol=1e-9)
    np.testing.assert_allclose([r["energy"] for r in own], [r["time"] * r["power"] / 100 for r in own], rtol=1e-9)


def test_all_kernels_under_one_cap_do_what_the_plan_expects(overview):
    rows = next(
        rows for rows in values(natural_figures(overview)[1].specification) if rows[-1].get("line", "").startswith("all")
    )
    cap = next(p for p in overview.plans if p.granularity == "iteration" and p.max_slowdown == 0.02)
    (row,) = [row for row in rows if row["line"].startswith("all") and row["mhz"] == cap.cap_mhz]
    assert row["energy"] / 100 - 1 == pytest.approx(cap.energy_change, abs=0.01)
    assert row["time"] / 100 - 1 == pytest.approx(cap.time_change, abs=0.005)


def test_losses_are_slopes_with_their_intervals(overview):
    for kernel in overview.kernels:
        curve = overview.curves[kernel.kernel]
        slope = -np.log(curve.time_s[-1] / curve.time_s[0]) / np.log(curve.core_mhz[-1] / curve.core_mhz[0])
        assert kernel.slope == pytest.approx(slope)
        assert kernel.slope_interval[0] < slope < kernel.slope_interval[1]
        expected = "nothing" if slope < 0.1 else "all" if slope > 0.9 else "some"
        assert kernel.loses == expected


def test_joules_add_up_to_the_iteration(overview, page):
    (rows,) = [each for each in values(specifications(page)["natural-joules"]) if "joules" in each[0]][:1]
    assert sum(row["joules"] for row in rows) == pytest.approx(overview.plan.baseline.energy_j, rel=1e-6)
    saved = sum(row["joules"] for row in rows if row["part"] == "saved by them")
    assert saved / overview.plan.baseline.energy_j == pytest.approx(-overview.plan.predicted.energy_change, abs=2e-3)


def test_the_page_says_what_is_measured_planned_and_forecast(page, overview):
    text = " ".join(re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]+>", " ", page, flags=re.S).split())
    for words in (
        "simulated", "no clock was set", "Forecast of the energy change, if clocks could be set",
        "Expected from measurements",
        "What this cannot show", "Memory clocks: the GPU does not change them by itself", "gpt3-xl on sim:h200",
    ):  # fmt: skip
        assert words in text
    assert "nan" not in text.lower().replace("finance", "")
    for kernel in overview.kernels:
        assert kernel.kernel in text


def test_the_headline_is_the_plan_of_one_cap_and_no_number_stands_twice(overview):
    effect, verdict, (one, own, basis) = story_of(overview)
    cap = next(p for p in overview.plans if p.granularity == "iteration" and p.max_slowdown == 0.02)
    two = next(p for p in overview.plans if p.granularity == "kernel" and p.max_slowdown == 0.02)
    assert "none was set" in verdict and cap.energy_change < 0.0
    assert effect.startswith(f"One cap of {cap.cap_mhz:,.0f}") and f"save {-100 * cap.energy_change:.1f}" in effect
    assert one.value.startswith(f"{-100 * cap.energy_change:.1f}") and f"a cap of {cap.cap_mhz:,.0f}" in one.text
    assert (one.commands, one.undo) == ((), ())  # a simulated GPU's numbers set no card's clock
    real = story_of(replace(overview, origin="measured", device="nvidia:0"))[2][0]
    assert real.commands == (f"nvidia-smi -i 0 -lgc 0,{cap.cap_mhz:.0f}",) and real.undo == ("nvidia-smi -i 0 -rgc",)
    assert own.value.startswith(f"{-100 * two.energy_change:.2f}") and "Cannot be had today" in own.note
    assert basis.value not in (one.value, own.value) and "no clock was set" in basis.text
    assert basis.lines[0].text == f"{overview.iteration_mhz:,.0f}\N{NO-BREAK SPACE}MHz, held there by the power limit"
    assert cap.cap_mhz < overview.iteration_mhz and f"{overview.iteration_mhz:,.0f} MHz" in plans_table(overview).note


def test_a_terminal_ends_on_the_forecast(overview):
    console = Console(width=120)
    with console.capture() as shown:
        console.print(natural_text(overview))
    promised = " ".join(f"FORECAST: {', '.join(story_of(overview)[:2])}".split())
    assert " ".join(shown.get().split()).endswith(promised)
    with console.capture() as shown:
        console.print(natural_text(replace(overview, origin="measured", device="nvidia:0")))
    (command,) = story_of(replace(overview, origin="measured", device="nvidia:0"))[2][0].commands
    assert " ".join(shown.get().split()).endswith(f"{promised} Root sets it with: {command}")


def test_without_a_cap_that_helps_nothing_is_promised(overview):
    idle = tuple(replace(p, energy_change=0.0, time_change=0.0, cap_mhz=None) for p in overview.plans)
    effect, _, (one, own, _) = story_of(replace(overview, plans=idle))
    assert effect.startswith("No cap") and (one.value, one.commands) == ("none helps", ()) and own.value == "saves no more"


def test_every_figure_has_a_form_for_narrow_pages(overview):
    for figure in natural_figures(overview):
        assert figure.narrow is not None and "hconcat" not in figure.narrow


def test_the_command_that_made_the_page_stands_in_its_foot(overview):
    made = natural_page(overview).html(
        command="wastenot kernel natural --study s.db", made_at=datetime(2026, 1, 2, tzinfo=UTC)
    )
    assert "wastenot kernel natural --study s.db" in made.partition("<footer>")[2].partition("</footer>")[0]


def test_tables_agree_with_the_plans(overview):
    two = next(p for p in overview.plans if p.granularity == "kernel" and p.max_slowdown == 0.02)
    assert plans_table(overview).rows[0].values[2] == two.energy_change
    by_energy = sorted(overview.kernels, key=lambda each: -each.energy_share)
    assert [row.values[0] for row in kernels_table(overview).rows] == [each.kernel for each in by_energy]
    table = forecast_table(overview.forecast)
    assert table is not None and len(table.rows) == 5 and "from the default" in table.rows[-1].texts[0]
    beyond = forecast_table(overview.forecast, beyond=True)
    assert beyond is not None and beyond.rows == table.rows[-2:]


def test_names_cannot_break_out_of_the_page(overview):
    evil = replace(overview, workload="</script><img src=x onerror=alert(1)>")
    assert "<img src=x" not in natural_page(evil).html(made_at=datetime(2026, 1, 2, tzinfo=UTC))


def test_figures_are_written_and_those_with_nothing_to_draw_are_left_out(overview, tmp_path, svg_only):
    without = replace(overview, wakes=())
    names = {path.name for path in natural_page(without).export(tmp_path)}
    assert "natural-joules.png" in names and "natural-wake.png" not in names
    assert all((tmp_path / name).stat().st_size > 1000 for name in names if name.endswith(".svg"))


def test_a_wake_follows_long_work_without_a_rest():
    def timeline(runs):
        """From (phase, subject, seconds) of each group."""
        phase, subject, seconds = map(np.array, zip(*runs, strict=True))
        end = np.cumsum(seconds)
        none = np.zeros(len(runs))
        return Timeline(phase, subject, np.ones(len(runs), int), end - seconds, end, none + 1500.0, {}, (), None)

    long_then_kernel = [(0, 1, 0.06), (0, 1, 0.06), (1, 0, 0.01), (1, 0, 0.01), (2, 1, 0.01), (3, 0, 0.01)]
    assert wakes_in(timeline(long_then_kernel)) == [(2, 4)]
    assert wakes_in(timeline([(0, 1, 0.2), (2, 0, 0.01)])) == []  # phase 1 was a rest
    assert wakes_in(timeline([(0, 0, 0.2)])) == []
