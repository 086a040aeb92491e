"""The totals of a report: what a reader is to see first, each as a figure of its own with a line of explanation."""

from __future__ import annotations

from dataclasses import dataclass

from wastenot.planning.plan import Goal, Plan
from wastenot.reporting.words import SPACE, change, number, percent, quantity

ITERATIONS = 1_000  # that energy and cost are stated for
_JOULES_PER_KWH = 3.6e6
_SLOW_DRIVER_S = 0.1  # dwell below which switches of tens of milliseconds eat the saving


@dataclass(frozen=True, slots=True)
class Total:
    """One total: a label, the value, what it means, and whether it is the main one."""

    label: str
    value: str
    detail: str
    main: bool = False


@dataclass(frozen=True, slots=True)
class Price:
    """What electricity costs, for one kilowatt-hour."""

    per_kwh: float
    currency: str


def totals(plan: Plan, price: Price | None) -> tuple[Total, ...]:
    """The totals of a plan, the most important first.

    Args:
        plan: to be summed up.
        price: of electricity; without it energy is stated without its cost.
    """
    predicted, baseline = plan.predicted, plan.baseline
    saved_j = baseline.energy_j - predicted.energy_j
    return (
        Total(
            "Energy saved",
            percent(-predicted.energy_change) + _error(predicted.energy_change_se),
            f"{quantity(saved_j, 'J')} of {quantity(baseline.energy_j, 'J')} in each iteration",
            main=True,
        ),
        Total(
            "Slowdown",
            change(predicted.time_change) + _error(predicted.time_change_se),
            f"{quantity(baseline.time_s, 's', 5)} at auto, {quantity(predicted.time_s, 's', 5)} under the plan",
            main=True,
        ),
        _money(saved_j, baseline.energy_j, price),
        Total(
            "Auto wastes",
            percent(plan.waste.share),
            f"{quantity(plan.waste.joules, 'J')} in each iteration could be saved without losing any time "
            f"({plan.granularity} granularity)",
        ),
        _certificate(plan),
        _switches(plan),
        Total(
            "Greatest time saving",
            percent(max(0.0, -plan.fastest.time_change)),
            f"{quantity(plan.fastest.time_s, 's', 5)} is the fastest that any clocks measured here can be, "
            "whatever energy that takes",
        ),
    )


def goal_words(goal: Goal) -> str:
    """What was asked for, in a line."""
    sure = "" if goal.confidence is None else f", kept with {percent(goal.confidence, 1)} confidence"
    bound = "" if goal.max_slowdown is None else f" with at most {percent(goal.max_slowdown)} slowdown{sure}"
    match goal.kind:
        case "waste":
            if not goal.max_slowdown:
                return f"least energy without any slowdown{sure}"
            if goal.max_slowdown < 0:
                return f"least energy at least {percent(-goal.max_slowdown)} faster than auto{sure}"
            return f"least energy{bound}"
        case "edp":
            exponent = "" if goal.edp_exponent in (None, 1.0) else f" to the power of {goal.edp_exponent:g}"
            return f"least energy × time{exponent}{bound}"
        case _:
            return f"least {goal.kind}, whatever the {'time' if goal.kind == 'energy' else 'energy'}"


def warnings(plan: Plan) -> tuple[str, ...]:
    """What a reader must know before using the plan."""
    found = []
    dwell_s = plan.switches.mean_dwell_s
    if dwell_s is not None:
        told = (
            "Today's drivers need milliseconds to tens of milliseconds for each switch of clocks. This plan switches "
            f"{plan.switches.per_iteration:,} times in an iteration and stays {quantity(dwell_s, 's', 3)} at a setting "
            "on average"
        )
        end = (
            ": the saving is what the clocks are worth, not yet what a schedule that waits for the driver can keep."
            if dwell_s < _SLOW_DRIVER_S
            else ", which leaves room for that; the time of the switches themselves is not counted here."
        )
        found.append(told + end)
    found.append(_what_to_expect(plan))
    return tuple(found)


def _what_to_expect(plan: Plan) -> str:
    """How far the prediction can be trusted: as measured again, as expected, or not known."""
    checked, expected = plan.validation, plan.expected
    if checked is not None:
        time, energy = checked.time_change, checked.energy_change
        return (
            f"Measured again, {checked.repeats} times in turn with auto: energy {change(energy.mean)} "
            f"({change(energy.interval[0])} to {change(energy.interval[1])}), time {change(time.mean)} "
            f"({change(time.interval[0])} to {change(time.interval[1])})."
        )
    luck = "Predicted, not yet validated: choosing the best of noisy measurements also chooses lucky ones"
    without = f"{luck}. Without that luck, expect"
    if plan.objective.confidence is not None:
        without = "Expected, not yet validated:"
    if expected is None:
        return f"{luck}, so expect a little less saving and a little more time when the plan is measured."
    saving, slowdown = expected.energy_change_interval, expected.time_change_interval
    kept = expected.probability_within_budget
    odds = "" if kept is None else f"; the slowdown allowed is kept with a probability of {percent(kept, 0)}"
    return (
        f"{without} energy {change(expected.energy_change)} ({change(saving[0])} to "
        f"{change(saving[1])}) and time {change(expected.time_change)} ({change(slowdown[0])} to {change(slowdown[1])}), "
        f"with {percent(expected.level, 0)} probability each{odds}."
    )


def _error(standard_error: float | None) -> str:
    if standard_error is None:
        return ""
    digits = 2 if standard_error >= 5e-5 else 3
    return f" ± {percent(standard_error, digits)}"


def _money(saved_j: float, baseline_j: float, price: Price | None) -> Total:
    saved, whole = (joules * ITERATIONS / _JOULES_PER_KWH for joules in (saved_j, baseline_j))

    def energy(kwh: float) -> str:
        return quantity(kwh * 1e3, "Wh", 3) if 0.0 < abs(kwh) < 1e-3 else f"{number(kwh, 3)}{SPACE}kWh"

    label = f"Per {ITERATIONS:,} iterations"
    if price is None:
        return Total(label, energy(saved), f"of {number(whole, 3)} kWh; no price of electricity was given")

    def cost(kwh: float) -> str:
        return f"{number(kwh * price.per_kwh, 3)}{SPACE}{price.currency}"

    return Total(
        label,
        energy(saved),
        f"of {energy(whole)}: {cost(saved)} of {cost(whole)} at {price.per_kwh:g} {price.currency} for a kWh",
    )


def _certificate(plan: Plan) -> Total:
    bound = plan.certificate
    within = f"within {percent(bound.gap, 2 if bound.gap >= 5e-5 else 4)}"
    sure = plan.objective.confidence
    within_budget = f"within {quantity(bound.budget_s, 's', 5)}"
    needs, numbers = ("needs", "on these numbers")
    if sure is not None:
        within_budget += f" with {percent(sure, 1)} confidence"
        needs, numbers = ("is expected to need", "without luck")
    return Total(
        "Certificate",
        "proven best" if bound.gap == 0.0 else within,
        f"no {plan.granularity}-level plan ({plan.scope} scope) {within_budget} {needs} less than "
        f"{quantity(bound.lower_bound_j, 'J', 5)} {numbers}; gap {percent(bound.gap, 3)}",
    )


def _switches(plan: Plan) -> Total:
    count, dwell_s = plan.switches.per_iteration, plan.switches.mean_dwell_s
    if dwell_s is None:
        return Total("Clock switches", "none", "the clocks are set once and stay")
    return Total(
        "Clock switches",
        f"{count:,}",
        f"in each iteration; {quantity(dwell_s, 's', 3)} at a setting on average",
    )
