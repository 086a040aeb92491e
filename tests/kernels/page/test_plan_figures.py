"""Figures as files, and what they leave out."""

from __future__ import annotations

import importlib
import re
from itertools import accumulate

import pytest

from wastenot.core.errors import BadInputError, MissingExtraError
from wastenot.core.install import install_line
from wastenot.kernels.page.desirability_figure import edp_desirability, waste_desirability
from wastenot.kernels.page.kernels_figure import kernels_figure
from wastenot.kernels.page.page import report_figures
from wastenot.kernels.page.schedule_figure import schedule_figures
from wastenot.pages import optional_imports
from wastenot.pages.figure import export_figures
from wastenot.pages.formatting import percent

NAMES = ["today", "schedule", "relaxed-waste", "switching", "kernels", "settings-coarse", "settings-kernel", "desirability"]
PASSES = ("forward", "loss", "backward")  # others are too short to be seen
_STARTS = {".svg": b"<svg", ".pdf": b"%PDF", ".png": b"\x89PNG"}


def test_files_are_what_their_names_say(coarse, tmp_path):
    written = export_figures([kernels_figure(coarse)], coarse.plan.origin, tmp_path)
    assert {path.suffix for path in written} == set(_STARTS)
    for path in written:
        assert path.read_bytes().startswith(_STARTS[path.suffix]) and path.stat().st_size > 1_000


def test_each_figure_becomes_three_files(coarse, tmp_path, svg_only):
    written = export_figures(report_figures(coarse), coarse.plan.origin, tmp_path / "figures")
    assert [path.name for path in written] == [f"{name}.{end}" for name in NAMES for end in ("svg", "pdf", "png")]
    for path in written:
        assert path.read_bytes().startswith(_STARTS[path.suffix])
        if path.suffix == ".svg":
            text = path.read_text(encoding="utf-8")
            assert "synthetic: synthetic, for a demonstration, not measured" in text
            assert "gpt3-xl on textbook GPU" in text


def test_a_figure_with_nothing_to_draw_is_left_out(cases, tmp_path, svg_only):
    data = cases["only auto"]()
    drawn = report_figures(data)
    written = export_figures(drawn, data.plan.origin, tmp_path)
    assert {path.stem for path in written} == {"relaxed-waste", "kernels", "desirability"}
    missing = [figure for figure in drawn if figure.specification is None]
    assert missing and all("only the default clocks were measured" in figure.note for figure in missing)


def test_the_schedule_that_can_be_applied_today_is_drawn_first(coarse):
    rung, schedule = coarse.plan.today.rung, coarse.plan.schedule
    (figure,) = schedule_figures(coarse.plan)
    assert percent(-coarse.plan.today.energy_change) in report_figures(coarse)[0].title
    assert f"{rung.switches} switch" in figure.note
    rows = [row for each in figure.specification["datasets"].values() for row in each]
    passes = [row for row in rows if "pass" in row]
    assert [row["pass"] for row in passes] == [each.name for each in schedule.markers if each.name in PASSES]
    factor = 1e3 if rung.time_s < 3.0 else 1.0
    (forward_s,) = (each.after_s for each in schedule.markers if each.name == "forward")
    assert passes[0]["t"] == pytest.approx(factor * forward_s, rel=0.01)
    assert passes[-1]["end"] == pytest.approx(factor * rung.time_s, abs=1e-3)
    stays = [row for row in rows if "mhz" in row]
    requested = {each.core_mhz for each in rung.segments} | {each.memory_mhz for each in rung.segments}
    assert stays and {row["mhz"] for row in stays} <= requested
    # A switch is requested before the moment from which its clock counts.
    begins_s = accumulate((each.time_s for each in rung.segments), initial=rung.segments[0].offset_s)
    due = {factor * ((at_s - each.early_s) % rung.time_s) for at_s, each in zip(begins_s, rung.segments, strict=False)}
    switched = [row["t"] for row in stays if row["t"] > 0.0]
    assert switched and all(min(abs(t - each) for each in due) < 1e-3 for t in switched)


def test_without_a_schedule_none_is_drawn(cases):
    assert schedule_figures(cases["only auto"]().plan) == schedule_figures(cases["one setting"]().plan) == ()


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(BadInputError, match="taken"):
        export_figures((), "measured", tmp_path / "taken")


def test_the_origin_is_in_every_figure(cases):
    data = cases["one setting"]()
    assert all(data.plan.origin in figure.subtitle for figure in report_figures(data))


def test_the_curve_has_the_plan_on_it(coarse):
    at_zero = [
        point
        for curve in coarse.curves
        if curve.granularity == "kernel" and curve.scope == "global"
        for point in curve.points
        if point.max_slowdown == 0.0
    ]
    assert [point.energy_change for point in at_zero] == [coarse.plan.predicted.energy_change]


def test_desirability_is_the_papers():
    # §3: to EDP, to lose a fifth of the time for a sixth more energy saved is all the same; to waste it is not.
    assert edp_desirability(0.25, -0.20) == pytest.approx(0.0)
    assert edp_desirability(-0.1, 0.0) == pytest.approx(edp_desirability(0.0, -0.1))
    assert waste_desirability(0.01, -0.5) is None
    assert waste_desirability(-0.5, 0.01) is None
    assert waste_desirability(-0.3, -0.1) == waste_desirability(0.0, -0.1) == 0.1


def test_a_missing_extra_says_how_to_install_it(coarse, monkeypatch):
    def refuse(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(MissingExtraError, match=re.escape(install_line("report"))):
        optional_imports.load("altair")
    with pytest.raises(MissingExtraError):
        report_figures(coarse)


def test_data_and_tables_need_no_extra():
    # In a process of its own: this one has long imported everything.
    import subprocess
    import sys

    code = (
        "import sys; import wastenot.kernels.plan.overview, wastenot.kernels.page.tables, wastenot.kernels.page.page;"
        "import wastenot.kernels.page.page;"
        "print(sorted({'altair', 'vl_convert', 'jinja2', 'polars'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
