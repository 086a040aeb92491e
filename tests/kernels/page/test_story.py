"""The head of a report: one verdict, three answers, and no number said twice, for every kind of plan."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from testbed.small_sweeps import make_sweep
from wastenot.kernels.cli.plan_text import story_text
from wastenot.kernels.page import page as page_module
from wastenot.kernels.page.provenance import Files, report_call
from wastenot.kernels.page.story import grams_text, next_step, story_of
from wastenot.kernels.page.summary import describe_goal, plan_numbers
from wastenot.kernels.page.verdict import is_default
from wastenot.kernels.plan.overview import PlanOverview
from wastenot.pages.formatting import SPACE, change, percent, quantity
from wastenot.pages.price import Price, energy_text
from wastenot.planning.carbon import CarbonIntensity
from wastenot.planning.comparison import Comparison
from wastenot.planning.objective import Objective
from wastenot.planning.plan import Measured, Plan, Validation
from wastenot.planning.planner import plan
from wastenot.study.sweep import Sweep

CLOCKS = (600, 900, 1200, 1500, 1800, 2000)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PRICE = Price(0.15, "USD")


def validated(made: Plan, energy: float, time: float, error: float = 5e-4) -> Plan:
    """A plan as a validation leaves it that found these changes."""

    def measured(mean: float) -> Measured:
        return Measured(mean=mean, interval=(mean - error, mean + error), least=mean - error, most=mean + error)

    base = made.baseline
    return made.model_copy(
        update={
            "validation": Validation(
                device=made.device,
                repeats=2,
                level=0.95,
                pairs=4,
                time_s=(base.time_s,) * 2,
                energy_j=(base.energy_j,) * 2,
                baseline_time_s=(base.time_s,) * 2,
                baseline_energy_j=(base.energy_j,) * 2,
                time_change=measured(time),
                energy_change=measured(energy),
            )
        }
    ).sealed()


def kernels(readings: int, device: str = "RTX 3080 Ti", origin: str = "measured", scale: float = 1.0) -> Sweep:
    """Ten kernels of two passes between compute and memory bound; several readings of each have 0.3 % of noise."""
    rng = np.random.default_rng(11)
    rows = []
    for index, share in enumerate(np.linspace(0.05, 1.0, 10)):
        for clock in (None, *CLOCKS):
            ghz = (clock or 2000) / 2000
            time = scale * 1e-3 * (share / ghz + (1 - share))
            power = 100 + 250 * ghz**2 * (0.4 + 0.6 * share)
            for _ in range(readings):
                noisy = time * (1 + 0.003 * rng.standard_normal())
                rows.append((f"k{index}", clock, None, noisy, noisy * power * (1 + 0.003 * rng.standard_normal())))
    passes = {f"k{index}": "forward" if index < 5 else "backward" for index in range(10)}
    return dataclasses.replace(make_sweep(rows, passes), device=device, origin=origin)


NOISY, BARE = kernels(2), kernels(1)
SLOW = kernels(2, scale=200.0)
SIMULATED = kernels(2, "sim:rtx-3080-ti", "simulated")
# Every other setting is slower and uses more.
HOPELESS = make_sweep([(f"k{k}", clock, None, 1.0 + (clock is not None), 1.0 + (clock is not None))
                       for k in range(2) for clock in (None, 900) for _ in range(6)])  # fmt: skip

# What makes each kind of plan, the tone of its verdict, and words that its sentence must have.
KINDS = {
    "kept": (NOISY, lambda s: validated(plan(s, max_slowdown=0.02), -0.101, 0.017), "kept",
             "Upper bound, if switching were instant: 10.10 % saved but 1.70 % slower; measured, "
             "the limit (at most 2 % slower) is kept"),
    "kept in simulation": (SIMULATED, lambda s: validated(plan(s, max_slowdown=0.02), -0.101, 0.017), "kept",
                           "measured on a simulated GPU"),
    "missed": (NOISY, lambda s: validated(plan(s, max_slowdown=0.01), -0.05, 0.014), "missed",
               "the limit (at most 1 % slower) is missed by 0.40 % of the time"),
    "undecided": (NOISY, lambda s: validated(plan(s, max_slowdown=0.02), -0.1, 0.0201), "undecided",
                  "too close to the limit"),
    "uses more": (NOISY, lambda s: validated(plan(s, max_slowdown=0.02), 0.003, -0.001), "kept",
                  "instant: 0.30 % more energy and 0.10 % faster"),
    "promised": (SLOW, lambda s: plan(s, max_slowdown=0.02), "promised",
                 "at most 2 % slower is promised with 95 % confidence"),
    "by a schedule": (SLOW, lambda s: plan(s, max_slowdown=0.02, switch_time_s=0.5), "promised", "by a schedule of"),
    "measured, with a schedule": (SLOW, lambda s: validated(
        plan(s, max_slowdown=0.02, switch_time_s=0.5), -0.101, 0.017), "promised",
                                  "10.10 % saved but 1.70 % slower; measured"),
    "missed, with a schedule": (SLOW, lambda s: validated(
        plan(s, max_slowdown=0.01, switch_time_s=0.5), -0.05, 0.014), "missed",
                                "Expected to save"),
    "promised in simulation": (kernels(2, "sim:rtx-3080-ti", "simulated", 200.0), lambda s: plan(s, max_slowdown=0.02),
                               "promised", "from simulated numbers"),
    "as measured": (NOISY, lambda s: plan(s, max_slowdown=0.02, as_measured=True), "as-measured", "which promise nothing"),
    "without errors": (BARE, lambda s: plan(s, max_slowdown=0.02), "as-measured", "which promise nothing"),
    "forecast": (kernels(1, origin="forecast"), lambda s: plan(s, max_slowdown=0.08), "as-measured", "Forecast to save"),
    "EDP": (NOISY, lambda s: plan(s, Objective("edp")), "promised", "no slowdown limit was set"),
    "EDP within a limit": (NOISY, lambda s: plan(s, Objective("edp", 0.05, 2.0)), "promised", "4.69 % saved"),
    "energy": (NOISY, lambda s: plan(s, Objective("energy")), "promised", "no slowdown limit was set"),
    "time": (BARE, lambda s: plan(s, Objective("time")), "as-measured", "Seems to run"),
    "by pass": (NOISY, lambda s: plan(s, max_slowdown=0.08, granularity="pass"), "promised", "Expected to save"),
    "one setting": (NOISY, lambda s: plan(s, max_slowdown=0.08, granularity="iteration"), "promised", "Expected to save"),
    "quick switches": (NOISY, lambda s: plan(s, max_slowdown=0.08, switch_time_s=1e-9), "promised", "Expected to save"),
    "nothing but auto": (HOPELESS, plan, "neutral", "Nothing to set, the default clocks stay"),
    "small kernels": (kernels(2, scale=1e-7), lambda s: plan(s, max_slowdown=0.02), "promised", "Upper bound, if switching"),
}  # fmt: skip


def plain(text: str) -> str:
    return text.replace("\xa0", " ")


@pytest.fixture(params=KINDS, scope="module")
def kind(request):
    sweep, make, tone, words = KINDS[request.param]
    return sweep, make(sweep), tone, words


def test_the_next_command_is_one_that_exists(kind):
    _, made, _, _ = kind
    step = next_step(made, Files())
    assert (step is None) == (not made.today.rung and (is_default(made) or made.headline.source == "validation"))
    if step is not None:
        (command,) = step.commands
        apply = "wastenot apply PLAN.json" + ("" if made.device.startswith("sim:") else " -- ")
        assert command.startswith((apply, "wastenot kernel validate --study STUDY.db --plan PLAN.json"))
        assert "--out PLAN.json" in step.text
        assert "--out" not in next_step(made, Files("my.db", Path("plan.json"))).text
    told = " ".join(line.text for panel in story_of(made, PRICE).panels for line in panel.lines)
    assert "wastenot plan" not in told and "wastenot validate" not in told


def test_no_slowdown_is_promised_as_no_slower():
    made = plan(SLOW, max_slowdown=0.02)
    strict = made.model_copy(update={"objective": made.objective.model_copy(update={"max_slowdown": 0.0})})
    assert "no slower than the default clocks, promised with 95 % confidence" in plain(story_of(strict, None).verdict)


def said(*texts):
    """The numbers with a unit in texts that stand large."""
    return re.findall(r"[0-9][0-9.,]* (?:%|[kmµn]?[Js]\b|[nµm]?Wh|kWh)", plain(" | ".join(texts)))


def test_every_kind_of_plan_has_its_verdict_and_says_no_number_twice(kind):
    _, made, tone, words = kind
    story = story_of(made, PRICE)
    assert story.tone == (tone if made.today.sets_something else "neutral")
    assert words in plain(f"{story.sentence}. {story.bound}.")
    assert (story.bound is None) == made.today.whole
    values = [panel.value for panel in story.panels]
    headline, numbers = said(story.effect), said(*values)
    assert (headline or numbers) and len(set(headline)) == len(headline) and len(set(numbers)) == len(numbers), numbers
    # The first panel begins with what the headline does, and no other has a number of it.
    assert not set(headline) & set(said(*values[1:])), values
    if made.today.sets_something and values[0] != "not worth it":
        assert said(values[0]) == headline[:1], (story.effect, values)
    assert len(set(values)) == 3, values


def test_the_numbers_below_do_not_repeat_what_the_head_saves(kind):
    _, made, _, _ = kind
    head = percent(abs(made.headline.energy_change))
    if made.headline.energy_change != 0.0:
        repeated = [card.label for card in plan_numbers(made, PRICE) if card.value == head]
        assert repeated == []


def test_the_page_of_every_kind_renders_and_shows_its_story(kind, monkeypatch):
    _, made, _, _ = kind
    monkeypatch.setattr(page_module, "report_figures", lambda _: ())  # these have tests of their own, and take long
    comparison = Comparison(made.workload, made.device, made.origin, "pass", ())
    overview = PlanOverview(made, comparison, (), (), None, (), ())
    page = page_module.plan_page(overview, price=PRICE).html(made_at=NOON, command="wastenot report my.db --page r.html")
    story = story_of(made, PRICE)
    body = page[page.index("<main>") : page.index("</footer>")]
    assert f'<section class="hero {story.tone}">' in body
    assert story.effect in body
    for panel in story.panels:
        assert panel.value in body
        for command in panel.commands:
            blocks = re.findall(r"<pre><code>([^<]*)</code>", body)
            assert any(command in block.splitlines() for block in blocks), command
    assert "<code>wastenot report my.db --page r.html</code>" in body
    assert made.digest in body
    text = re.sub(r"<[^>]+>", " ", body)
    assert not re.search(r"\b(None|nan|inf)\b|[0-9]e[−-][0-9]", text), re.findall(r".{30}(?:None|nan|e[−-][0-9])", text)


def test_the_printed_story_fits_80_columns_and_keeps_commands_whole(kind):
    _, made, _, _ = kind
    story = story_of(made, PRICE)
    console = Console(width=80, highlight=False)
    with console.capture() as captured:
        console.print(story_text(story))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if re.match(r"\s*(%|MHz|J|s|kWh|USD)\b", line)], "a unit without its number"
    for panel in story.panels:
        for command in panel.commands:
            assert command in [line.strip() for line in lines]
    order = [lines.index(panel.title) for panel in story.panels]
    assert order == sorted(order) and lines[0].startswith(story.effect[:40])


def test_what_can_be_set_names_its_commands_and_what_undoes_them():
    made = plan(NOISY, max_slowdown=0.08)
    today = story_of(made, PRICE).panels[0]
    whole = made.applicable.rows[-1]
    assert today.commands == whole.commands and today.commands[0].startswith("nvidia-smi -i 0 -lgc 0,")
    assert today.undo == ("nvidia-smi -i 0 -rgc",)
    assert "Needs root" in today.note and "simulated" not in today.note
    assert "sweep the real card" in story_of(plan(SIMULATED, max_slowdown=0.08), PRICE).panels[0].note


def test_the_plan_and_the_rest_add_up_to_what_is_saved():
    made = plan(NOISY, max_slowdown=0.08)
    story, found = story_of(made, PRICE), made.applicable
    more = found.finest.energy_change - made.headline.energy_change
    assert plain(story.panels[2].value) == f"{100 * more:.1f} % more"
    needed = found.rows[0].shortest_dwell_s
    assert quantity(needed, "s", 2) in story.panels[2].lines[0].text


def test_a_saving_that_no_run_could_show_is_not_offered():
    made = plan(NOISY, max_slowdown=0.08)
    rows = [row.model_copy(update={"energy_change": -0.0004}) if row.fits else row for row in made.applicable.rows]
    tiny = made.model_copy(update={"applicable": made.applicable.model_copy(update={"rows": tuple(rows)})})
    today = story_of(tiny, PRICE).panels[0]
    assert today.value == "not worth it" and today.commands == ()


def test_a_call_in_python_shows_no_password():
    call = report_call("postgresql://me:secret@host/energy", "r.html", plan="plan.json", price=None)
    assert "secret" not in call
    assert call == "wn.report('postgresql://me:***@host/energy', 'r.html', plan='plan.json')"
    assert report_call(NOISY, "r.html") == "wn.report(sweep, 'r.html')"


def test_grams_stand_beside_joules() -> None:
    """What a run emits less, as the plan's file has it, in the text and on the page."""
    grid = CarbonIntensity(at_s=(0.0, 64_800.0), g_per_kwh=(100.0, 400.0), start_s=61_200.0, run_s=36_000.0)
    made = plan(NOISY, Objective("carbon", 0.05, carbon_g_per_kwh=grid))
    assert made.carbon is not None and made.carbon.saved_g_interval is not None
    low, high = made.carbon.saved_g_interval
    (line,) = (
        each
        for each in (line for panel in story_of(made, PRICE).panels for line in panel.lines)
        if each.label.startswith("Carbon")
    )
    assert line.label == f"Carbon {change(made.carbon.change)}"
    for grams in (made.carbon.saved_g, low, high, made.carbon.baseline_g):
        assert grams_text(grams) in line.text
    assert energy_text(made.carbon.saved_j) in line.text and "of a run of 10 h from 17:00" in line.text
    goal = describe_goal(made.objective).replace(SPACE, " ")
    assert goal == "least carbon of a run of 10 h from 17:00 at no more than 5.00 % slowdown with 95.0 % confidence"
    assert not [
        each
        for each in (line for panel in story_of(plan(NOISY, max_slowdown=0.02), PRICE).panels for line in panel.lines)
        if "Carbon" in each.label
    ]
