"""The page of a job whose setting was tuned: the setting, the search for it, and how to use it again."""

import json

import pytest

from testbed.applied import GPU, status, summary
from wastenot.control.page.next_step import next_step
from wastenot.control.page.page import applied_figures, applied_page
from wastenot.control.page.story import story_of
from wastenot.control.page.tables import events_table
from wastenot.control.page.trials import trials_table
from wastenot.control.status import Estimate, Event, Trial, Tuning


def estimate(value):
    return Estimate(value=value, low=value - 0.001, high=value + 0.001)


def trial(core_mhz=None, power_limit_w=None, *, time=None, energy=None, outcome="more energy"):
    return Trial(
        core_mhz=core_mhz, memory_mhz=None, power_limit_w=power_limit_w, stretches=0 if time is None else 2,
        time_change=time and estimate(time), energy_change=energy and estimate(energy), outcome=outcome,
    )  # fmt: skip


TUNING = Tuning(
    done=True, tried=4, left=1, trials=6, iterations=300, trying=None, best="core 1470, memory auto",
    time_change=estimate(0.01), energy_change=estimate(-0.08), regret=0.004,
)  # fmt: skip
TRIALS = (
    trial(1650.0, time=0.002, energy=-0.03),
    trial(1470.0, time=0.010, energy=-0.08, outcome="held"),
    trial(power_limit_w=250.0, time=0.012, energy=-0.05),
    trial(1000.0, outcome="too slow"),
)


@pytest.fixture(scope="module")
def tuned():
    return summary(stepped=False, points=60, tuning=TUNING).model_copy(update={"trials": TRIALS})


def plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_the_setting_stands_in_the_headline_and_in_a_card(tuned):
    _, effect, _, panels = story_of(tuned)
    assert plain(effect).startswith("A core clock of 1,470 MHz saves 8.1 ± 0.5 % of the energy")
    assert (panels[0].title, plain(panels[0].value)) == ("Energy per iteration", "8.1 % saved")
    assert (panels[1].title, plain(panels[1].value)) == ("Setting found", "1,470 MHz")
    assert "best of 4 settings" in panels[1].text and "memory clock left to the driver" in panels[1].text


def test_what_was_saved_is_of_the_time_after_the_search(tuned):
    begun = (*tuned.status.events[:1], Event(at_s=60.0, kind="started", text="tune"), *tuned.status.events[1:])
    panels = story_of(tuned.model_copy(update={"status": status(tuning=TUNING, events=begun)}))[3]
    events = [(60.0, "note", "search finished"), (60.0, "started", "tune")]
    ended = status(events=tuple(Event(at_s=at_s, kind=kind, text=text) for at_s, kind, text in events))
    assert [row.texts[0] for row in events_table(tuned.model_copy(update={"status": ended})).rows] == ["1"]
    assert "in the 2.0 min after the search" in plain(panels[0].lines[0].text)
    assert "300 iterations in 60 s" in plain(panels[1].lines[0].text)


def test_a_setting_that_the_job_left_is_in_no_headline(tuned):
    stepped = tuned.model_copy(update={"status": status(tuning=TUNING, rung=1)})
    assert "MHz" not in story_of(stepped)[1] and next_step(stepped) is None


def test_the_search_follows_the_saving_and_shows_what_was_compared(tuned):
    figure = next(each for each in applied_figures(tuned) if each.specification and each.name != "applied-saving")
    assert figure.name == "applied-search" and "1 more" in figure.note
    rows = [row for rows in figure.specification["datasets"].values() for row in rows if "outcome" in row]
    shown = {(row["at"], row["change"], row["outcome"]) for row in rows}
    assert (1470.0, -8.0, "held to the end") in shown and (250.0, 1.2, "saves less") in shown
    assert not any(row["at"] == 1000.0 for row in rows)


def test_the_table_lists_every_setting_by_energy(tuned):
    rows = trials_table(tuned).rows
    assert [plain(row.texts[0]) for row in rows] == ["1,470 MHz", "250 W power limit", "1,650 MHz", "1,000 MHz"]
    assert rows[-1].texts[1:3] == ("–", "–") and rows[-1].texts[-1] == "too slow"


def test_the_next_command_applies_the_plan_to_the_same_job(tuned):
    made = "wastenot tune --workload gpt3-xl --out tuned.json --summary tune.json --page tune.html"
    filled = next_step(tuned).filled(made)
    assert filled.commands == ("wastenot apply tuned.json --device sim:rtx-3080-ti",) and "PLAN" not in filled.text
    assert next_step(tuned).commands == ("wastenot apply PLAN.json --device sim:rtx-3080-ti",)
    real = status(tuning=TUNING, workload="python train.py", gpus=(GPU.model_copy(update={"device": "nvidia:0"}),))
    assert next_step(tuned.model_copy(update={"status": real})).commands == ("wastenot apply PLAN.json -- python train.py",)


def test_a_page_of_a_tuned_job_names_no_plan(tuned):
    html = applied_page(tuned).html()
    assert "tuned while it ran" in html and "digest" not in html.split("<footer>")[1].split("</footer>")[0]


def test_what_was_tried_is_read_back(tuned):
    assert type(tuned).model_validate_json(json.dumps(tuned.document())) == tuned
