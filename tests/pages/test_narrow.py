"""The form of figures on a phone: one panel in a row, as wide as there is room, and nothing of a row's axis lost."""

from __future__ import annotations

import copy
import json
import re

import pytest

from wastenot.pages.figure import inline, name_axis, series_color, specification_of, vega_lite_version
from wastenot.pages.narrow import NARROW_WIDTH, PANEL_WIDTH, narrow_form
from wastenot.pages.optional_imports import load
from wastenot.pages.theme import LIGHT

ROWS = [{"index": index, "x": float(index), "y": 1e3 * index, "kind": f"kind {index}", "text": "long", "short": "s"}
        for index in range(5)]  # fmt: skip


def panel(width=400, *, y=None, color=None, **properties):
    alt = load("altair")
    y = alt.Y("y:Q", title="energy, J") if y is None else y
    base = alt.Chart(inline(ROWS)).encode(x=alt.X("x:Q", title="time, s", axis=alt.Axis(tickCount=12)), y=y)
    base = base if color is None else base.encode(color=color)
    return (base.mark_line() + base.mark_text().encode(text="text:N")).properties(width=width, height=200, **properties)


def width_of(form):
    svg = load("vl_convert").vegalite_to_svg(form, vl_version=vega_lite_version(), config=LIGHT)
    return float(re.search(r'<svg[^>]* width="([\d.]+)"', svg)[1])


def layers(form):
    return [layer for each in form["vconcat"] for layer in each["layer"]]


def test_panels_of_a_row_stand_below_each_other_with_the_axis_of_the_first():
    alt = load("altair")
    bare = panel(y=alt.Y("y:Q", title=None, axis=alt.Axis(labels=False)))
    wide = specification_of(alt.hconcat(panel(), bare))
    before = copy.deepcopy(wide)
    form = narrow_form(wide)
    assert wide == before and form["datasets"] is wide["datasets"]
    assert "hconcat" not in json.dumps(form) and width_of(form) <= NARROW_WIDTH
    channels = [layer["encoding"]["y"] for layer in layers(form)]
    assert {channel["title"] for channel in channels} == {"energy, J"}
    assert all(channel.get("axis", {}).get("labels", True) for channel in channels)


def test_text_is_short_and_ticks_are_few():
    form = narrow_form(specification_of(panel()))
    line, text = form["layer"]
    assert text["encoding"]["text"]["field"] == "short"
    assert line["encoding"]["x"]["axis"]["tickCount"] <= 5


def test_long_titles_take_several_lines():
    form = narrow_form(specification_of(panel(title="a title of a panel that is too long for a page of a telephone")))
    assert len(form["title"]["text"]) == 2


def test_legends_have_as_many_columns_as_there_is_room_for():
    few, many = (
        panel(color=series_color("kind:N", dict.fromkeys(names, "#000000")))
        for names in (["a", "b"], [f"a series with a rather long name {index}" for index in range(4)])
    )
    for chart, columns in ((few, 2), (many, 1)):
        form = narrow_form(specification_of(chart))
        legend = form["layer"][0]["encoding"]["color"]["legend"]
        assert legend["columns"] == columns and width_of(form) <= NARROW_WIDTH


@pytest.mark.parametrize("names_width", [80, 250])
def test_names_that_leave_no_room_beside_rows_stand_above_them(names_width):
    alt = load("altair")
    rows = [f"the kernel with number {index}" for index in range(5)]
    chart = alt.Chart(inline(ROWS)).encode(x="x:Q", y=alt.Y("index:O", title=None, axis=name_axis(rows, names_width)))
    bars = (chart.mark_bar() + chart.mark_text(align="left", dx=5).encode(text="text:N")).properties(width=600, height=90)
    form = narrow_form(specification_of(bars))
    bar, text = form["layer"]
    above = names_width > 100
    assert ("yOffset" in bar["mark"] if isinstance(bar["mark"], dict) else False) == above
    assert (text["mark"]["align"] == "right") == above
    assert width_of(form) <= NARROW_WIDTH


def test_a_square_stays_square_and_the_width_is_known_to_what_depends_on_it():
    alt = load("altair")
    chart = panel(200).properties(width=400, height=400).add_params(alt.param(name=PANEL_WIDTH, value=400))
    form = narrow_form(specification_of(chart))
    assert form["width"] == form["height"] < NARROW_WIDTH
    assert [each["value"] for each in form["params"]] == [form["width"]]


def test_a_column_of_words_beside_bars_is_left_out():
    alt = load("altair")
    words = (
        alt.Chart(inline(ROWS)).mark_text().encode(y=alt.Y("y:Q", axis=None), text="text:N").properties(width=90, height=90)
    )
    form = narrow_form(specification_of(alt.hconcat(panel(), words)))
    assert len(form["vconcat"]) == 1
