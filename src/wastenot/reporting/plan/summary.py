"""The headline numbers of a plan, what was asked for, and what to know before using it."""

from __future__ import annotations

from wastenot.planning.plan import Goal, Plan
from wastenot.reporting.formatting import SPACE, change, number, percent, quantity
from wastenot.reporting.html_page import Card
from wastenot.reporting.plan.coverage_text import among, coverage_note
from wastenot.reporting.price import JOULES_PER_KWH, Price

ITERATIONS = 1_000  # that energy and cost are stated for
_SLOW_DRIVER_S = 0.1  # mean dwell below which switches of tens of milliseconds eat the saving


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
    missing = coverage_note(plan.coverage)
    return (*([] if missing is None else [missing]), *_of_measured_points(plan))


def _of_measured_points(plan: Plan) -> tuple[str, ...]:
    dwell_s = plan.switches.mean_dwell_s
    if dwell_s is None:
        return (_what_to_expect(plan),)
    switching = (
        "Today's drivers take milliseconds to tens of milliseconds to switch clocks. This plan switches them "
        f"{plan.switches.per_iteration:,} times per iteration and stays {quantity(dwell_s, 's', 3)} at a setting on average"
    )
    consequence = (
        ": the saving is what these clocks are worth if switching were free, not what can be applied with this driver."
        if dwell_s < _SLOW_DRIVER_S
        else ", which leaves room for that; the time that the switches take is not included."
    )
    return (switching + consequence, _what_to_expect(plan))


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
    count, dwell_s = plan.switches.per_iteration, plan.switches.mean_dwell_s
    if dwell_s is None:
        return Card("Clock switches", "none", "the clocks are set once and stay")
    return Card("Clock switches", f"{count:,}", f"per iteration; {quantity(dwell_s, 's', 3)} at a setting on average")
