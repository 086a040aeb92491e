"""The headline numbers of a plan, what was asked for, and what to know before using it."""

from __future__ import annotations

from wastenot.planning.applicable import Applicable, alone, headline_changes
from wastenot.planning.plan import Goal, Plan
from wastenot.planning.switching import SwitchTime
from wastenot.reporting.formatting import SPACE, change, number, percent, quantity, shortened
from wastenot.reporting.html_page import Card
from wastenot.reporting.plan.coverage_text import among, coverage_note
from wastenot.reporting.price import JOULES_PER_KWH, Price
from wastenot.study.plausible import implausible_power
from wastenot.workloads.captured_on import capture_note

ITERATIONS = 1_000  # that energy and cost are stated for
_LONGEST_NAME = 40


def summary_cards(plan: Plan, price: Price | None) -> tuple[Card, ...]:
    """The headline numbers of a plan, the most important first.

    Args:
        plan: to summarise.
        price: of electricity; without it no cost is stated.
    """
    predicted, baseline = plan.predicted, plan.baseline
    saved_j = baseline.energy_j - predicted.energy_j
    return (
        Card(
            "Energy saved",
            percent(-predicted.energy_change) + _error(predicted.energy_change_se),
            f"{quantity(saved_j, 'J')} of {quantity(baseline.energy_j, 'J')} per iteration",
            main=True,
        ),
        Card(
            "Slowdown",
            change(predicted.time_change) + _error(predicted.time_change_se),
            f"{quantity(baseline.time_s, 's', 5)} per iteration at default clocks (auto), "
            f"{quantity(predicted.time_s, 's', 5)} with the plan",
            main=True,
        ),
        _applicable(plan),
        _money(saved_j, baseline.energy_j, price),
        Card(
            "Waste at default clocks",
            percent(plan.waste.share),
            f"{quantity(plan.waste.joules, 'J')} per iteration could be saved at no loss of time "
            f"({plan.granularity} granularity)",
        ),
        _certificate(plan),
        _switches(plan),
        Card(
            "Largest time saving",
            percent(max(0.0, -plan.fastest.time_change)),
            f"{quantity(plan.fastest.time_s, 's', 5)} per iteration is the fastest possible with the clocks measured, "
            "whatever the energy",
        ),
    )


def describe_goal(goal: Goal) -> str:
    """What was asked for, in one line."""
    sure = "" if goal.confidence is None else f" with {percent(goal.confidence, 1)} confidence"
    bound = "" if goal.max_slowdown is None else f" at no more than {percent(goal.max_slowdown)} slowdown{sure}"
    match goal.kind:
        case "waste":
            if not goal.max_slowdown:
                return f"least energy with no slowdown{sure and ',' + sure}"
            if goal.max_slowdown < 0:
                return f"least energy at a speed-up of at least {percent(-goal.max_slowdown)}{sure}"
            return f"least energy{bound}"
        case "edp":
            exponent = "" if goal.edp_exponent in (None, 1.0) else f" to the power of {goal.edp_exponent:g}"
            return f"least energy × time{exponent}{bound}"
        case _:
            return f"least {goal.kind}, whatever the {'time' if goal.kind == 'energy' else 'energy'}"


def warnings(plan: Plan) -> tuple[str, ...]:
    """What a reader must know before using the plan."""
    doubts = (
        coverage_note(plan.coverage),
        capture_note(plan.captured_on),
        implausible_power(plan.baseline.time_s, plan.baseline.energy_j),
    )
    return (*(doubt for doubt in doubts if doubt is not None), *_of_measured_points(plan))


def _of_measured_points(plan: Plan) -> tuple[str, ...]:
    if plan.switches.mean_dwell_s is None:
        return (_what_to_expect(plan),)
    return (_what_switching_takes(plan), _what_to_expect(plan))


def applicable_today(plan: Plan) -> Applicable:
    """What of the plan could be set today; of a plan made without it only whether the plan itself could be."""
    return plan.applicable or alone(plan)


def describe_switch_time(switching: SwitchTime) -> str:
    """How long switches take, and where that comes from."""
    memory = "" if switching.memory_s == switching.core_s else f", {_duration(switching.memory_s)} for memory clocks"
    times = f"{_duration(switching.core_s)}{memory}"
    match switching.basis:
        case "given":
            return f"{times}, as given"
        case "stated":
            return f"{times}, as stated by {switching.source}"
    return f"{times}, assumed until you measure it and pass --switch-time: {switching.source}"


def _what_switching_takes(plan: Plan) -> str:
    """Whether the device switches as fast as the plan would need."""
    found = applicable_today(plan)
    row, count = found.rows[0], f"{plan.switches.per_iteration:,} times per iteration"
    assert row.shortest_dwell_s is not None and row.switch_time_s is not None
    stay, switch = quantity(row.shortest_dwell_s, "s", 3), _duration(row.switch_time_s)
    known = "a switch is assumed to take" if found.switching.basis == "assumed" else "a switch takes"
    if row.fits:
        late = row.switch_time_s * plan.switches.per_iteration / plan.predicted.time_s
        return (
            f"This plan switches clocks {count} and stays at least {stay} at a setting; {known} {switch}. Until a switch "
            f"has taken effect the setting before remains, at most {percent(late)} of the time, which the numbers leave out."
        )
    return (
        f"The saving is what these clocks are worth if switching were free. This plan switches them {count} and stays at a "
        f"setting for as little as {stay}; {known} {switch}."
    )


def _what_to_expect(plan: Plan) -> str:
    """How far the prediction can be trusted: validated, expected, or not known."""
    validation, expected = plan.validation, plan.expected
    if validation is not None:
        time, energy = validation.time_change, validation.energy_change
        return (
            f"Validated by {validation.repeats} measurements interleaved with auto: energy {change(energy.mean)} "
            f"({change(energy.interval[0])} to {change(energy.interval[1])}), time {change(time.mean)} "
            f"({change(time.interval[0])} to {change(time.interval[1])})."
        )
    luck = "Predicted, not yet validated: choosing the best of noisy measurements favours lucky ones"
    if expected is None:
        return f"{luck}, so expect a little less saving and a little more time when the plan is measured."
    start = f"{luck}. Corrected for this, expect"
    if plan.objective.confidence is not None:
        start = "Not yet validated. Expect"
    saving, slowdown = expected.energy_change_interval, expected.time_change_interval
    kept = expected.probability_within_budget
    odds = "" if kept is None else f"; the slowdown limit holds with a probability of {percent(kept, 0)}"
    return (
        f"{start} energy {change(expected.energy_change)} ({change(saving[0])} to {change(saving[1])}) and time "
        f"{change(expected.time_change)} ({change(slowdown[0])} to {change(slowdown[1])}), each with "
        f"{percent(expected.level, 0)} probability{odds}."
    )


def _duration(seconds: float) -> str:
    """A duration that is a round number, as one."""
    value, unit = quantity(seconds, "s", 3).split(SPACE)
    return f"{float(value.replace(',', '')):g}{SPACE}{unit}"


def _error(standard_error: float | None) -> str:
    if standard_error is None:
        return ""
    digits = 2 if standard_error >= 5e-5 else 3
    return f" ± {percent(standard_error, digits)}"


def _money(saved_j: float, baseline_j: float, price: Price | None) -> Card:
    saved_j, baseline_j = saved_j * ITERATIONS, baseline_j * ITERATIONS

    def energy(joules: float) -> str:
        kwh = joules / JOULES_PER_KWH
        return quantity(kwh * 1e3, "Wh", 3) if 0.0 < abs(kwh) < 1e-3 else f"{number(kwh, 3)}{SPACE}kWh"

    label = f"Per {ITERATIONS:,} iterations"
    if price is None:
        return Card(label, energy(saved_j), f"saved of {energy(baseline_j)}; no price of electricity was given")

    def cost(joules: float) -> str:
        return f"{number(price.cost(joules), 3)}{SPACE}{price.currency}"

    detail = f"saved of {energy(baseline_j)}: {cost(saved_j)} of {cost(baseline_j)}"
    return Card(label, energy(saved_j), f"{detail} at {price.per_kwh:g} {price.currency} per kWh")


def _certificate(plan: Plan) -> Card:
    bound, confidence, coverage = plan.certificate, plan.objective.confidence, plan.coverage
    value = f"within {percent(bound.gap, 2 if bound.gap >= 5e-5 else 4)}"
    if bound.gap == 0.0:
        whole = coverage is not None and coverage.complete
        known = "given" if coverage is not None and coverage.kind == "given" else "measured"
        value = "proven optimal" if whole else f"best of those {known}"
    budget = f"within {quantity(bound.budget_s, 's', 5)}"
    needs, condition = "uses", "on these numbers"
    if confidence is not None:
        budget += f" with {percent(confidence, 1)} confidence"
        needs, condition = "is expected to use", "after correction for noise"
    return Card(
        "Certificate",
        value,
        f"among {among(coverage)}, no {plan.granularity}-level plan ({plan.scope} scope) {budget} {needs} less than "
        f"{quantity(bound.lower_bound_j, 'J', 5)} {condition}; gap {percent(bound.gap, 3)}",
    )


def _switches(plan: Plan) -> Card:
    switches = plan.switches
    if switches.mean_dwell_s is None:
        return Card("Clock switches", "none", "the clocks are set once and stay")
    detail = f"per iteration; {quantity(switches.mean_dwell_s, 's', 3)} at a setting on average"
    if switches.shortest_dwell_s is not None and switches.shortest_dwell_unit is not None:
        unit = shortened(switches.shortest_dwell_unit, _LONGEST_NAME)
        detail += f", {quantity(switches.shortest_dwell_s, 's', 3)} at least ({unit})"
    return Card("Clock switches", f"{switches.per_iteration:,}", detail)


def _applicable(plan: Plan) -> Card:
    """The finest granularity that the device can switch for: what a user could set now."""
    label, found = "Applicable today", applicable_today(plan)
    row = found.finest
    if row is None or row.energy_change is None:
        why = "; plan by pass or iteration" if plan.applicable is None else ", and there is none with one setting"
        return Card(label, "nothing", f"the device switches too slowly for this plan{why}")
    energy_change, time_change = row.energy_change, row.time_change
    if row.granularity == plan.granularity:
        energy_change, time_change = headline_changes(plan)
    what = f"saved with clocks by {row.granularity}, time {change(time_change)}"
    if row.setting is not None:
        setting = row.setting.setting
        what = f"saved with one setting, time {change(time_change)}: {'; '.join(row.commands) or setting}"
        if setting.is_auto:
            what = "no single setting is better than the default clocks: nothing to set"
    return Card(label, percent(-energy_change), what)
