"""What a plan says in ten seconds: what can be had today, what the plan would do, and what faster switching would add."""

from __future__ import annotations

from dataclasses import replace

from wastenot.kernels.page.applicable_panels import GRANULARITY_WORDS, apply_command, gain_words, rest_panel, today_panel
from wastenot.kernels.page.provenance import Files
from wastenot.kernels.page.verdict import (
    is_default,
    known_of,
    limit_words,
    missing_of,
    origin_of_validation,
    pace,
    range_of,
    verdict_of,
)
from wastenot.pages.formatting import MINUS, SPACE, change, changes, digits_within, number, percent, quantity, saved_range
from wastenot.pages.panel import Line, Next, Panel, Story
from wastenot.pages.price import SECONDS_PER_YEAR, Price, energy_text
from wastenot.planning.headline import Interval
from wastenot.planning.plan import Plan

_BOUND = "Upper bound, if switching were instant"


def story_of(plan: Plan, price: Price | None, files: Files | None = None) -> Story:
    """The story of a plan.

    Args:
        plan: to tell of.
        price: of electricity; without it no cost is stated.
        files: to name in commands.
    """
    tone, effect, how, known = verdict_of(plan)
    missing = missing_of(plan)
    files = files or Files()
    now, rest = today_panel(plan, files), rest_panel(plan)
    if plan.today.whole:
        return Story(tone, effect, how, known, missing, (_plan_panel(plan, price, files), now, rest))
    now = replace(now, lines=(*_year(plan, price), *now.lines))
    return Story(tone, effect, how, known, missing, (now, _bound_panel(plan, files), rest), bound_of(plan))


def bound_of(plan: Plan) -> str:
    """What the plan would do if switching were instant, in one sentence."""
    main, other = gain_words(plan, plan.headline.energy_change, plan.headline.time_change)
    return f"{_BOUND}: {main} {other}; {_known(plan)}"


def _known(plan: Plan) -> str:
    """How sure that is: as measured, or the range that is expected."""
    return range_of(plan, plan.headline) if plan.headline.source == "promise" else known_of(plan)[1]


def saved_joules(plan: Plan) -> float:
    """What an iteration saves with what can be applied today."""
    return 0.0 - plan.today.energy_change * plan.baseline.energy_j


def units_in_words(plan: Plan) -> str:
    """What gets clocks of its own."""
    if len({row.unit for row in plan.assignments}) == 1:
        return GRANULARITY_WORDS["iteration"]
    return GRANULARITY_WORDS[plan.granularity]


def _plan_panel(plan: Plan, price: Price | None, files: Files) -> Panel:
    baseline, saved_j = plan.baseline, -plan.headline.energy_change * plan.baseline.energy_j
    title = f"This plan: {'the default clocks' if is_default(plan) else units_in_words(plan)}"
    at_default = f"the default clocks take {quantity(baseline.energy_j, 'J')} and {quantity(baseline.time_s, 's')}"
    if is_default(plan):
        return Panel(title, quantity(baseline.energy_j, "J"), f"per iteration, in {quantity(baseline.time_s, 's')}.")
    if plan.objective.saves_time:
        saved_s = -plan.headline.time_change * baseline.time_s
        amount = f"{quantity(abs(saved_s), 's')} {'less' if saved_s >= 0.0 else 'more'}"
    else:
        amount = f"{quantity(abs(saved_j), 'J')} {'less' if saved_j >= 0.0 else 'more'}"
    value, besides = _gain(plan)
    lines = (*_year(plan, price), *_certainty(plan, files), *_carbon(plan))
    return Panel(title, value, f"{besides}: {amount} per iteration; {at_default}.", lines=lines)


def _gain(plan: Plan) -> tuple[str, str]:
    of = plan.headline
    return gain_words(plan, of.energy_change, of.time_change, of.energy_change_interval)


def _bound_panel(plan: Plan, files: Files) -> Panel:
    """The plan itself, where the device switches too slowly for it."""
    main, other = _gain(plan)
    words = f"{other}, with {units_in_words(plan)}; {_known(plan)}."
    return Panel(_BOUND, main, words, lines=(*_certainty(plan, files), *_carbon(plan)))


def _certainty(plan: Plan, files: Files) -> list[Line]:
    """How far the numbers can be trusted: measured again, promised, or as measured."""
    headline, expected, goal = plan.headline, plan.expected, plan.objective
    lines = []
    if headline.source == "validation":
        assert plan.validation is not None
        text = _intervals(headline.energy_change_interval, headline.time_change_interval)
        times = f"{plan.validation.repeats} times, interleaved with the default clocks"
        origin = origin_of_validation(plan)
        lines.append(Line("Measured" if origin == "measured" else f"Measured ({origin})", f"{text}; {times}"))
        if expected is not None and goal.corrected:
            limit = "" if goal.max_slowdown is None or goal.confidence is None else f"; {limit_words(goal.max_slowdown)}"
            energy = f"energy {change(expected.energy_change)} ({changes(expected.energy_change_interval)})"
            if expected.energy_change < 0.0 and expected.energy_change_interval[1] < 0.0:
                digits = digits_within(expected.energy_change_interval)
                energy = f"{percent(-expected.energy_change, digits)} ({saved_range(expected.energy_change_interval)})"
            lines.append(Line("Promised", f"{energy}, {pace(expected.time_change)}{limit}"))
        else:
            planned = plan.predicted
            text = f"energy {change(planned.energy_change)}, time {change(planned.time_change)}, by the sweep's numbers"
            lines.append(Line("Planned", text))
        if headline.verdict == "missed":
            lines.append(Line("Next", "wastenot kernel refine measures the best settings again, for a new plan"))
        elif headline.verdict == "undecided":
            lines.append(Line("Next", "wastenot kernel validate with more --repeats can decide"))
        return lines
    if headline.source == "promise":
        intervals = _intervals(headline.energy_change_interval, headline.time_change_interval)
        lines.append(Line("Expected", f"{intervals}; corrected for noise and selection bias"))
        written = "" if files.plan is not None else f"wastenot kernel plan with --out {files.plan_text}, then "
        command = validate_command(plan, files)
        return [*lines, Line("To confirm", f"{written}{command} measures it, interleaved with the default clocks")]
    if headline.energy_change_interval is not None:
        text = _intervals(headline.energy_change_interval, headline.time_change_interval)
        lines.append(Line("Standard errors", f"{text}; selection bias not included"))
    if expected is None:
        lines.append(
            Line("Noise", "this study does not say how noisy it is; with repeats or standard errors "
                 "(time_se_s, energy_se_j) a plan can make a promise")
        )  # fmt: skip
        return lines
    kept = expected.probability_within_budget
    odds = "" if kept is None else f"; the probability of staying within the limit is {percent(kept, 0)}"
    text = (
        f"energy {change(expected.energy_change)} ({changes(expected.energy_change_interval)}), time "
        f"{change(expected.time_change)} ({changes(expected.time_change_interval)}){odds}"
    )
    return [*lines, Line("Expected", text)]


def validate_command(plan: Plan, files: Files) -> str:
    """The command that measures a plan again; in capitals what the reader is to fill in."""
    control = "" if plan.device.startswith("sim:") else " --allow-clock-control"
    return f"wastenot kernel validate --study {files.study_text} --plan {files.plan_text}{control}"


def next_step(plan: Plan, files: Files) -> Next | None:
    """Run a job with what can be had today, or else measure the plan again; ``None`` where neither adds anything."""
    if is_default(plan):
        return None
    if plan.today.rung is not None:
        job, saving = ("a simulated job", "estimated") if plan.device.startswith("sim:") else ("a job", "measured")
        command = apply_command(plan, files)
        then = f"Run {job} with it: the slowdown limit is guarded, and the saving {saving}"
    elif plan.headline.source != "validation":
        command = validate_command(plan, files)
        then = "Measure it, interleaved with the default clocks, before relying on it"
    else:
        return None
    if files.plan is None:
        to_file = f"by wastenot kernel plan with the options of this plan and --out {files.plan_text}"
        then = f"Write the plan to a file, {to_file}, then {then[:1].lower()}{then[1:]}"
    return Next(then, (command,))


def _year(plan: Plan, price: Price | None) -> list[Line]:
    saved_j = saved_joules(plan) * SECONDS_PER_YEAR / plan.baseline.time_s
    if saved_j == 0.0:
        return []
    cost = "" if price is None else f": {price.cost_text(abs(saved_j))} at {price.per_kwh:g} {price.currency} per kWh"
    return [Line("A GPU-year", f"{energy_text(abs(saved_j))} {'saved' if saved_j > 0.0 else 'more'}{cost}")]


def _carbon(plan: Plan) -> list[Line]:
    """What a run, or a day, emits less, with its energy beside it."""
    found, grid = plan.carbon, plan.objective.carbon
    if found is None or grid is None:
        return []
    low, high = found.saved_g_interval or (None, None)
    within = "" if low is None or high is None else f" ({grams_text(low)} to {grams_text(high)})"
    energy = f"{'' if found.saved_j >= 0.0 else MINUS}{energy_text(abs(found.saved_j))}"
    text = (
        f"{grams_text(found.saved_g)} of CO2e{within} of {grams_text(found.baseline_g)}, and {energy}, saved per "
        f"{found.per}; {found.g_per_kwh:.4g} g/kWh, {grid.when}"
    )
    return [Line(f"Carbon {change(found.change)}", text)]


def grams_text(grams: float) -> str:
    """A mass, in grams to tonnes."""
    return f"{number(1e-6 * grams, 3)}{SPACE}t" if abs(grams) >= 1e6 else quantity(grams, "g", 3)


def _intervals(energy: Interval | None, time: Interval | None) -> str:
    known = (("energy", "saved", energy), ("time", "faster", time))
    parts = [saved_range(interval, what=what, name=name) for name, what, interval in known if interval is not None]
    return f"{', '.join(parts)} (95{SPACE}%)"
