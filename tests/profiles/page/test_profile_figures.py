"""Figures and pages of power profiles: what they draw, what they leave out, and that a browser shows them."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.devices.instrument import TOTAL
from wastenot.pages.formatting import percent, quantity
from wastenot.profiles.options import ProfileOptions
from wastenot.profiles.page import page as page_module
from wastenot.profiles.page.description import profiles_table, state_table, steady
from wastenot.profiles.page.page import draw_profiles, next_step, profile_page, story_of
from wastenot.profiles.profile import profile
from wastenot.profiles.result import CounterCheck

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
_STARTS = {".svg": b"<svg", ".pdf": b"%PDF", ".png": b"\x89PNG"}


@pytest.fixture(scope="module")
def alone():
    return profile("gemm:4096", "sim:mi300x", options=ProfileOptions(runs=40, executions=30))


@pytest.fixture(scope="module")
def after():
    return profile("gemm:4096", "sim:mi300x", after=["gemv:4096x20"], options=ProfileOptions(runs=40))


@pytest.fixture(scope="module")
def averaged():
    return profile("gemm:8192", "sim:h200", options=ProfileOptions(budget_s=15.0))


_DRAWN = {}


def figures_of(*profiles):
    """Their figures, drawn once."""
    key = tuple(map(id, profiles))
    if key not in _DRAWN:
        _DRAWN[key] = profiles, draw_profiles(profiles)
    return _DRAWN[key][1]


@pytest.fixture
def drawn_before(alone, monkeypatch):
    """Pages and files of any profile show the figures of this one."""
    monkeypatch.setattr(page_module, "draw_profiles", lambda profiles, **options: figures_of(alone))


def values(figure):
    """All rows that a figure holds."""
    return [row for rows in figure.specification["datasets"].values() for row in rows]


def level_only(found):
    """The same, with a last channel that averages over too long to be drawn in time."""
    last = found.channels[-1]
    channel = replace(last.channel, window_s=1.0)
    none = np.empty(0)
    channels = (*found.channels[:-1], replace(last, channel=channel, mean_w=none, error_w=none))
    states = []
    for state in found.states:
        inside = replace(state.channels[channel.name], share=none, power_w=none, error_w=none, trend_w=(), resolved=False)
        states.append(replace(state, channels={**state.channels, channel.name: inside}))
    return replace(found, channels=channels, states=tuple(states))


def test_one_profile_becomes_three_figures_of_three_files(alone, tmp_path, drawn_before, svg_only):
    written = profile_page([alone]).export(tmp_path / "figures")
    assert [path.name for path in written] == [
        f"{name}.{end}" for name in ("profile-run", "profile-inside", "profile-method") for end in ("svg", "pdf", "png")
    ]
    for path in written:
        assert path.read_bytes().startswith(_STARTS[path.suffix])
    svg = (tmp_path / "figures" / "profile-run.svg").read_text(encoding="utf-8")
    for words in (
        "simulated: from a simulated GPU",
        "gemm-4096 on sim:mi300x",
        "reading",
        "warm-up",
        "first at full speed (SSE)",
        "at steady power (SSP)",
    ):
        assert words in svg, words


def test_every_figure_says_device_runs_and_origin(alone, after, averaged):
    for figure in (*figures_of(alone), *figures_of(averaged), *figures_of(alone, after)):
        assert "sim:" in figure.subtitle and "simulated numbers" in figure.subtitle and "runs" in figure.subtitle


def test_readings_are_those_of_the_profile(alone):
    run, inside, _ = figures_of(alone)
    drawn = [row for row in values(run) if row.get("kind", "").startswith("reading")]
    golden = {round(float(power), 1) for power in alone.logged.power_w[alone.logged.golden == 1]}
    assert drawn and {row["p"] for row in drawn if row["kind"] == "reading"} <= golden
    ssp = alone.state("SSP")
    dots = [row for row in values(inside) if row.get("kind") == "reading"]
    assert len(dots) == sum(state.channels["total"].readings for state in alone.states)
    means = [row["p"] for row in values(run) if row.get("execution") == ssp.unit]
    assert any(mean == pytest.approx(ssp.channels["total"].mean_w, abs=0.01) for mean in means)


def test_a_channel_that_averages_for_long_is_a_level_only(alone):
    found = level_only(alone)
    name = found.channels[-1].channel.name
    run, inside, _ = draw_profiles([found])
    assert not [row for figure in (run, inside) for row in values(figure) if name in (row.get("name"), row.get("kind"))]
    assert f"Not drawn over time: {name}" in run.note
    assert any(name in row.texts[0] and "level" in row.texts[0] for row in state_table(found).rows)
    components, _, _ = draw_profiles([found, alone])
    assert len([row for row in values(components) if row.get("says")]) == 2 * len(found.channels)
    assert name != "HBM" or "HBM" in str(components.specification)  # the other profile still has it


def test_means_of_a_sensor_that_averages_are_no_power_inside(averaged):
    run, inside, method = figures_of(averaged)
    assert "longer than an execution" in run.note
    assert not [row for row in values(inside) if row.get("kind") == "reading"]
    assert method.specification is None and "averages" in method.note


def test_a_kernel_alone_and_after_others(alone, after):
    contexts = figures_of(alone, after)[-1]
    texts = [row["text"] for row in values(contexts) if "text" in row]
    assert len(texts) == 2 and "%" in texts[1] and "%" not in texts[0]
    assert draw_profiles([alone, alone])[-1].specification is None


def test_relative_power_is_of_the_largest(alone, after):
    components = draw_profiles([alone, after], relative=True)[0]
    assert max(row["p"] for row in values(components) if "says" in row) == pytest.approx(100.0)
    assert "100.0" in " ".join(row.texts[1] for row in profiles_table([alone, after], relative=True).rows)


def test_no_profile_is_refused():
    with pytest.raises(BadInputError, match="no power profile"):
        draw_profiles([])


@pytest.mark.system
def test_pages_open_without_an_error(alone, after, averaged, tmp_path, browse):
    nasty = replace(alone, kernel="</script><b>&'\"", device="<i>device</i>", notes=("a <b>note</b>",), complete=False)
    for place, profiles in enumerate(([alone], [nasty], [averaged], [alone, after, averaged, level_only(alone)])):
        path = tmp_path / f"{place}.html"
        profile_page(profiles).write(path, made_at=NOON)
        opened = browse(path)
        assert opened.errors == ""
        assert opened.charts == {figure.name: 1 for figure in draw_profiles(profiles) if figure.specification}
        assert [address for address in opened.addresses if re.match(r"(?i)(https?:)?//", address)] == []
        assert "simulated" in " ".join(opened.text).lower()


def test_a_page_says_what_is_incomplete_and_the_badge_where_numbers_come_from(alone, drawn_before):
    page = profile_page([replace(alone, complete=False, notes=("too little",))]).html(made_at=NOON)
    assert "incomplete" in page and "Too little." in page and '<div class="badge simulated"' in page
    measured = replace(alone, origin="measured")
    assert '<div class="badge measured"' in profile_page([measured]).html(made_at=NOON)
    assert '<div class="badge simulated"' in profile_page([measured, alone]).html(made_at=NOON)


def test_figures_have_a_form_for_narrow_pages_with_one_panel_in_a_row(alone, after):
    for figure in (*figures_of(alone), *figures_of(alone, after)):
        assert (figure.narrow is None) == (figure.specification is None)
        assert "hconcat" not in json.dumps(figure.narrow)


def test_the_headline_is_what_reading_too_early_misses_and_says_whether_the_counter_agrees(alone, after):
    _, effect, verdict, panels = story_of([alone])
    first, steady = alone.states[0], alone.states[-1]
    assert f"{percent(1.0 - first.energy_j / steady.energy_j, 1)} too low" in effect
    assert quantity(float(alone.unit_begin_s[steady.unit - 1]), "s", 2) in effect
    assert f"{steady.channels[TOTAL].mean_w:.1f}" in verdict and verdict.endswith("shows the method, not a GPU")
    measured = replace(alone, origin="measured", complete=True)
    _, _, checked, _ = story_of([measured])
    assert checked.startswith("the energy counter agrees to") == (alone.counter is not None)
    off = replace(measured, counter=CounterCheck(counter_w=105.0, profile_w=100.0, seconds=3.0))
    tone, _, differs, _ = story_of([off])
    assert differs.endswith("(105.0\N{NO-BREAK SPACE}W and 100.0\N{NO-BREAK SPACE}W): trust the profile no closer than that")
    (said,) = (text for name, text in profile_page([off]).made_from if name == "Energy counter")
    assert "105.0" in said and "100.0" in said and "simulated" not in said  # the check stands in the foot
    assert "agrees" not in story_of([replace(off, origin="simulated")])[2]
    assert tone == "undecided" and differs.startswith("the energy counter differs by 4.76\N{NO-BREAK SPACE}%")
    values = [panel.value for panel in panels]
    assert len(set(values)) == len(values) == 3 and f"{alone.runs:,} runs" in profile_page([alone]).about
    assert values[1] == f"{quantity(steady.energy_j - first.energy_j, 'J', 3)} missed"
    tone, effect, verdict, _ = story_of([replace(alone, complete=False)])
    assert tone == "undecided" and verdict.startswith("incomplete")
    assert f" power after {after.before} than alone" in story_of([alone, after])[1]
    assert " more power than " in story_of([alone, replace(after, kernel="other")])[1]
    assert story_of([alone, alone])[1].endswith("draw the same power within the errors")


def test_profiles_read_from_files_name_them_in_the_next_command(alone, after):
    other = replace(after, kernel="gemv-4096", before="")
    _, _, verdict, panels = story_of([alone, other])
    assert f"{panels[0].value} apart, well beyond the errors" in verdict
    assert panels[0].text.endswith("each alone, at steady power.")
    shares = [
        percent(steady(each).channels["XCD"].mean_w / steady(each).channels[TOTAL].mean_w, 0) for each in (alone, other)
    ]
    assert all(each in verdict for each in shares)
    named = next_step([alone, other], ("my gemm.parquet", "gemv.parquet"))
    assert named.commands[1] == "wastenot profile compare 'my gemm.parquet' after.parquet --page order.html"
    assert "PROFILE" in next_step([alone, other]).text and "PROFILE" not in " ".join((named.text, *named.commands))


def test_a_sensor_slower_than_the_kernel_is_said_to_read_too_low(averaged):
    _, effect, _, panels = story_of([averaged])
    logged, total = averaged.logged, averaged.states[-1].channels[TOTAL]
    raw_w = logged.power_w[(logged.channel == 0) & (logged.golden == 1) & (logged.unit > 0)].mean()
    assert raw_w < 0.9 * total.mean_w
    assert effect.startswith(f"Raw readings of gemm-8192 are {percent(1.0 - raw_w / total.mean_w, 1)} too low")
    assert panels[1].value.endswith(" missed") and panels[-1].value == f"{averaged.runs:,} runs"


def test_what_cannot_be_drawn_is_said_before_the_figures(alone, monkeypatch):
    run, inside, method = figures_of(alone)
    drawn = run, replace(inside, note="Too slow a sensor.", specification=None), replace(method, specification=None)
    monkeypatch.setattr(page_module, "draw_profiles", lambda profiles, **options: drawn)
    page = profile_page([alone])
    assert list(page.all_figures) == [run] and page.notes[-1] == "Too slow a sensor." and not page.folded.figures


def test_the_command_that_made_a_page_stands_in_its_foot(alone, drawn_before):
    page = profile_page([alone]).html(command="wastenot profile run gemm:1024", made_at=datetime(2026, 1, 2, tzinfo=UTC))
    assert "wastenot profile run gemm:1024" in page.partition("<footer>")[2].partition("</footer>")[0]
