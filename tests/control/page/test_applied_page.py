"""The page of a run: what it says is what the summary says, and it says where that comes from."""

import json
import re
from datetime import UTC, datetime

import pytest

from testbed.applied import GPU, NO_PROOF, PROOF, instants, status, summary
from wastenot.control.page.close_up_figure import last_iterations
from wastenot.control.page.next_step import next_step
from wastenot.control.page.page import applied_figures, applied_page
from wastenot.control.page.passes_table import means_by_pass, passes_table
from wastenot.control.page.story import plus_minus, story_of
from wastenot.control.page.tables import events_table, gpus_table
from wastenot.control.status import Estimate, Event, Summary
from wastenot.pages.narrow import NARROW_WIDTH

MADE = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture(scope="module")
def made():
    return summary()


@pytest.fixture(scope="module")
def figures(made):
    return applied_figures(made)


@pytest.fixture(scope="module")
def page(made):
    return applied_page(made).html(made_at=MADE, command="wastenot report --applied run.json")


def of(time=(-0.001, 0.001, 0.003), ended="job ended", **changed):
    low, value, high = time
    proof = PROOF.model_copy(update={"time_change": Estimate(value=value, low=low, high=high)})
    made = status(**({"proof": proof} | changed))
    return Summary(status=made, ended=ended, exit_code=0, time_line=())


def plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_the_headline_is_the_saving_and_the_time_with_their_errors():
    tone, effect, verdict, _ = story_of(of())
    assert plain(effect) == "Saved 8.1 ± 0.5 % of the energy, 0.1 ± 0.2 % slower"
    assert tone == "kept"
    assert plain(verdict) == "within the slowdown limit of 2 %, with 95 % confidence, on a simulated GPU"


@pytest.mark.parametrize(
    ("time", "tone", "said"),
    [
        ((0.010, 0.015, 0.0199), "kept", "within the slowdown limit"),
        (
            (0.010, 0.018, 0.026),
            "undecided",
            "probably within the slowdown limit of 2 %, but not certain yet: +1.00 % to +2.60 %",
        ),
        ((0.021, 0.026, 0.031), "missed", "slower than the limit of 2 %"),
    ],
)
def test_the_verdict_is_by_the_interval(time, tone, said):
    found, _, verdict, _ = story_of(of(time))
    assert found == tone and said in plain(verdict)


def test_a_limit_of_nothing_is_said_as_no_slower():
    proof = PROOF.model_copy(update={"time_change": Estimate(value=-0.0005, low=-0.0011, high=0.0001)})
    text = plain(story_of(of(proof=proof, max_slowdown=0.0))[2])
    assert text.startswith("probably no slower than the default clocks, but not certain yet: −0.11 % to +0.01 %")


def test_what_is_undecided_comes_with_the_iterations_that_settle_it():
    found = next_step(of((0.010, 0.018, 0.026)))
    # Half the interval has to shrink from 0.8 % to the 0.2 % left to the limit: 16 times 599 iterations, and a margin.
    assert found.commands == ("wastenot apply plan.json --device sim:rtx-3080-ti --iterations 12000",)
    assert "12,000 iterations" in found.text
    assert next_step(of((0.010, 0.0199, 0.030))) is None


def test_a_kept_limit_and_a_dry_run_lead_to_the_same_plan_again():
    again = ("wastenot apply plan.json --device sim:rtx-3080-ti",)
    assert next_step(of(dry_run=True)).commands == again
    rehearsal = next_step(of())
    assert rehearsal.commands == (f"{again[0]} -- python train.py",) and "Rehearse your own program" in rehearsal.text
    assert next_step(of(ended="refused")) is None


def test_measured_and_simulated_are_told_apart():
    for origin, said in (("measured", "measured while the job ran"), ("simulated", "on a simulated GPU")):
        made = of(origin=origin)
        assert story_of(made)[2].endswith(said)
        assert f'class="badge {origin}"' in applied_page(made).html(made_at=MADE)


def test_more_energy_is_not_called_a_saving():
    worse = PROOF.model_copy(update={"energy_change": Estimate(value=0.02, low=0.01, high=0.03)})
    assert plain(story_of(of(proof=worse))[1]).startswith("Used 2.0 ± 1.0 % more energy")


def test_what_is_not_known_is_said():
    tone, effect, verdict, panels = story_of(of(proof=NO_PROOF))
    assert tone == "undecided" and "too short to estimate" in effect and verdict.endswith("is unknown")
    assert panels[0].value == panels[1].value == "unknown"
    applied_page(of(proof=NO_PROOF, gpus=(), iteration=None)).html(made_at=MADE)


def test_a_job_that_went_back_to_the_default_clocks_says_so():
    tone, effect, verdict, panels = story_of(of(rung=3))
    assert plain(effect) == "Saved 4.20 kJ, then returned to the default clocks"
    assert tone == "undecided" and verdict.startswith("none of the plan's clocks stayed within the slowdown limit")
    assert panels[1].lines[-1].text == "the default clocks"
    made = summary(stepped=False)
    last = made.time_line[-1].model_copy(update={"rung": 3, "at_default": False})
    rows = applied_figures(made.model_copy(update={"time_line": (last,)}))[1].specification["datasets"].values()
    assert {row["arm"] for row in next(each for each in rows if "arm" in each[0])} == {"default clocks"}


def test_dry_runs_and_refusals_promise_nothing():
    tone, effect, _, _ = story_of(of(dry_run=True))
    assert tone == "neutral" and effect.endswith("no clock was set")
    assert "refused" in story_of(of(ended="refused", proof=NO_PROOF))[1]


@pytest.mark.parametrize(
    ("low", "value", "high", "text"),
    [
        (-0.001, 0.001, 0.003, "+0.1 ± 0.2 %"),
        (-0.0002, 0.0001, 0.0004, "+0.01 ± 0.03 %"),
        (-0.09, -0.08, -0.07, "−8.0 ± 1.0 %"),
    ],
)
def test_digits_follow_the_error(low, value, high, text):
    assert plain(plus_minus(Estimate(value=value, low=low, high=high))) == text


def test_the_time_line_shows_what_was_read(made, figures):
    rows = next(rows for rows in figures[1].specification["datasets"].values() if "power" in rows[0])
    assert len(rows) == len(made.time_line)
    assert [row["power"] for row in rows] == [pytest.approx(moment.power_w, abs=0.05) for moment in made.time_line]
    assert {row["arm"] for row in rows if row["core"] == 1710.0} == {"default clocks"}


def test_requested_clocks_are_lines_that_end_where_the_request_does():
    made = summary(stepped=False)
    rows = next(rows for rows in applied_figures(made)[1].specification["datasets"].values() if "end" in rows[0])
    asked = {moment.at_s: moment.target_core_mhz for moment in made.time_line}
    for at_s, target in asked.items():
        over = {row["core"] for row in rows if row["t"] <= at_s + 1e-5 and at_s < row["end"] - 1e-5}
        assert over == ({target} if target is not None else set()) or at_s == made.time_line[-1].at_s


def test_estimates_are_those_of_their_moments(made, figures):
    figure = figures[2]
    bands = [rows for rows in figure.specification["datasets"].values() if "low" in rows[0]]
    time = next(rows for rows in bands if rows[0]["value"] > 0.0)
    for moment in made.time_line:
        row = [each for each in time if each["t"] <= moment.at_s + 1e-5 < each["end"]]
        if moment.time_change is None:
            assert row == []
        elif row:
            assert row[0]["value"] == pytest.approx(100 * moment.time_change.value, abs=1e-3)
            assert row[0]["low"] == pytest.approx(100 * moment.time_change.low, abs=1e-3)
    levels = [rows[0] for rows in figure.specification["datasets"].values() if "what" in rows[0]]
    assert {(each["what"], each["value"]) for each in levels} == {("limit", 2.0), ("predicted", 0.0), ("predicted", -8.3)}


def test_the_close_up_is_of_the_last_two_whole_iterations_at_the_plans_clocks():
    window = last_iterations(tuple(instants(10.0, iterations=6, at_default=(4, 5))))
    assert window.begins_s == pytest.approx(10.6) and window.ends_s == pytest.approx(11.2)
    assert last_iterations(tuple(instants(10.0, iterations=2))) is None  # the second has no end
    assert last_iterations(tuple(instants(10.0, iterations=6, at_default=(1, 3)))) is None


def test_the_close_up_shows_passes_and_requests_where_they_were(figures):
    data = list(figures[3].specification["datasets"].values())
    passes = next(rows for rows in data if "pass" in rows[0])
    assert [(row["pass"], row["t"], row["end"]) for row in passes[:4]] == [
        ("forward", 0.0, 90.0), ("loss", 90.0, 105.0), ("backward", 105.0, 270.0), ("optimizer", 270.0, 300.0),
    ]  # fmt: skip
    requests = next(rows for rows in data if "mhz" in rows[0])
    assert [(row["mhz"], row["t"], row["end"]) for row in requests] == [
        (1350.0, 0.0, 5.0), (1470.0, 5.0, 100.0), (1350.0, 100.0, 305.0), (1470.0, 305.0, 400.0), (1350.0, 400.0, 600.0),
    ]  # fmt: skip


def test_events_are_numbered_as_in_the_table(made, figures):
    table = events_table(made)
    step = next(row for row in table.rows if row.texts[2] == "step")
    rows = next(rows for rows in figures[1].specification["datasets"].values() if "number" in rows[0])
    assert [row["number"] for row in rows] == [step.texts[0]] == ["2"]


def test_means_by_pass_are_those_of_the_readings():
    made = summary(stepped=False)
    rows = means_by_pass(made.time_line, 3)
    forward = passes_table(made).rows[0].values
    assert forward[:3] == ("forward", rows[0]["power"], rows[1]["power"])
    assert forward[3] == pytest.approx(rows[0]["power"] / rows[1]["power"] - 1.0) and forward[4] == rows[0]["core"]
    assert [row["pass"] for row in rows[::2]] == ["forward", "loss", "backward", "optimizer"]
    (row,) = [row for row in rows if row["pass"] == "backward" and row["arm"] == "plan's clocks"]
    own = [moment for moment in made.time_line if moment.marker == "backward" and not moment.at_default]
    assert row["readings"] == len(own)
    assert row["power"] == pytest.approx(sum(moment.power_w for moment in own) / len(own), abs=0.06)
    assert row["core"] == 1350.0


def test_layers_count_to_their_pass_and_the_start_of_an_iteration_to_none():
    first = summary().time_line[0]
    moments = [first.model_copy(update={"marker": name}) for name in ("iteration", "backward:3", "backward:2", "backward")]
    assert [(row["pass"], row["readings"]) for row in means_by_pass(moments, 3)] == [("backward", 3)]


def test_each_figure_has_a_narrow_form(figures):
    for figure in figures:
        for part in figure.narrow.get("vconcat", [figure.narrow]):
            assert part["width"] < NARROW_WIDTH


def test_a_run_without_a_time_line_says_why_there_is_no_figure():
    figures = applied_figures(of())
    assert [figure.specification for figure in figures if figure.name != "applied-saving"] == [None]
    assert all(figure.note for figure in figures)


def test_what_needs_attention_stands_above_the_figures(page):
    text = plain(page)
    assert "<p>Slowdown 2.6 % (2.2 to 3.0 %) is above 2 %: one rung towards speed.</p>" in text
    assert "wastenot report --applied run.json" in text and "digest 5f1c2ab0" in text


def test_names_cannot_break_the_page():
    evil = Event(at_s=1.0, kind="note", text="</script><b>&")
    made = of(plan="</script><b>.json", events=(evil,), gpus=(GPU.model_copy(update={"device": "<i>"}),))
    text = applied_page(made).html(made_at=MADE)
    assert "</script><b>" not in text and "<i>" not in text


def test_gpus_show_a_dash_for_what_is_not_known():
    bare = GPU.model_copy(update={"power_w": None, "energy_j": None, "temperature_c": None, "core_mhz": None})
    assert gpus_table(of(gpus=(bare, bare))).rows[0].texts[2:] == ("–", "–", "–", "core –, memory 9,501 MHz")
    assert gpus_table(of(gpus=(bare,))) is None


def test_figures_are_files_too(tmp_path, svg_only):
    files = applied_page(summary(points=60)).export(tmp_path / "figures")
    names = ("saving", "time-line", "estimates", "close-up")
    assert {path.name for path in files} == {f"applied-{name}.{kind}" for name in names for kind in ("svg", "pdf", "png")}
    assert "simulated" in (tmp_path / "figures" / "applied-close-up.svg").read_text()


def test_the_page_holds_its_data_and_fetches_nothing(page):
    found = re.search(r'<script type="application/json" id="specifications">(.*?)</script>', page, re.S)
    assert set(json.loads(found[1])["figures"]) == {
        "applied-saving",
        "applied-time-line",
        "applied-estimates",
        "applied-close-up",
    }
    assert not re.search(r'(src|href)="http', page)
