"""The headline numbers of a plan, what was asked for, and what to know before using it."""

from __future__ import annotations

from collections.abc import Callable

from wastenot.planning.applicable import Applicable, alone
from wastenot.planning.headline import HeadlineSource
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
_WORTH_SAYING = 0.005  # of the energy, by which a tolerance must save more
_SOURCES: dict[HeadlineSource, str] = {"validation": "measured", "promise": "expected", "measurements": "as measured"}


NATURAL_NOTE = (
    "No clock was set: this is a plan of caps on core clocks, from times and powers at clocks that the GPU went through by "
    "itself. A cap above the clock that a kernel has by itself changes nothing; caps below those seen are not offered."
)


def summary_cards(plan: Plan, price: Price | None) -> tuple[Card, ...]:
    """The headline numbers of a plan, the most important first.

    Args:
        plan: to summarise.
        price: of electricity; without it no cost is stated.
    """
    headline, baseline = plan.headline, plan.baseline
    saved_j = 0.0 - headline.energy_change * baseline.energy_j
    source = _SOURCES[headline.source]
    low, high = headline.energy_change_interval or (None, None)
    return (
        Card(
            "Energy saved",
            percent(-headline.energy_change),
            _interval(None if low is None or high is None else (-high, -low), percent)
            + f"{source}; {quantity(saved_j, 'J')} of {quantity(baseline.energy_j, 'J')} per iteration",
            main=True,
        ),
        Card(
            "Slowdown",
            change(headline.time_change),
            _interval(headline.time_change_interval, change)
            + f"{source}; {quantity(baseline.time_s, 's', 5)} per iteration at default clocks (auto)",
            main=True,
        ),
        *_limit(plan),
        _applicable(plan),
        _money(saved_j, baseline.energy_j, price),
        Card(
            "Waste at default clocks",
            percent(plan.waste.share),
            f"{quantity(plan.waste.joules, 'J')} per iteration could be saved at no loss of time "
            f"({plan.granularity} granularity)",
        ),
        *_potential(plan),
        _certificate(plan),
        _switches(plan),
        Card(
            "Largest time saving",
            percent(max(0.0, -plan.fastest.time_change)),
            f"{quantity(plan.fastest.time_s, 's', 5)} per iteration is the fastest possible with the clocks measured, "
            "whatever the energy",
        ),
    )


def limit_verdict(plan: Plan) -> str | None:
    """Whether the slowdown limit was kept, or is promised to be; ``None`` where there is none or nothing is known."""
    headline, limit = plan.headline, plan.objective.max_slowdown
    if limit is None:
        return None
    bound, measured = change(limit), change(headline.time_change)
    match headline.verdict:
        case "kept":
            return f"kept: measured {measured}, limit {bound}"
        case "missed":
            return f"missed by {percent(headline.missed_by or 0.0)} of the time: measured {measured}, limit {bound}"
        case "undecided":
            side = "within" if headline.time_change <= limit else "over"
            return f"undecided: measured {measured}, {side} the limit of {bound} by less than the measurement can tell"
    if headline.source == "promise" and plan.objective.confidence is not None:
        return f"at most {bound}, with {percent(plan.objective.confidence, 1)} confidence"
    return None


def strictness_note(plan: Plan) -> str | None:
    """What a strict plan gives up by being sure, and what a tolerance would give; ``None`` where there is nothing to say."""
    confidence, tolerance = plan.objective.confidence, plan.tolerance
    nothing = all(row.setting.is_auto for row in plan.assignments)
    if confidence is None:
        text = "The plan is nothing but the default clocks: by these numbers no other setting does better within the limit."
        return text if nothing else None
    more = tolerance is not None and tolerance.energy_change < plan.headline.energy_change - _WORTH_SAYING
    if not nothing and not more:
        return None
    sure = f"with {percent(confidence, 1)} confidence"
    text = f"To be no slower {sure} leaves much of the saving. "
    if nothing:
        text = f"The plan is nothing but the default clocks: {sure}, no other setting is sure to be no slower. "
    if more and tolerance is not None:
        low, high = tolerance.energy_change_interval
        text += (
            f"A tolerance of {percent(tolerance.max_slowdown, 1)}, less than a run can show, would save "
            f"{percent(-tolerance.energy_change)} ({percent(-high)} to {percent(-low)}): --max-slowdown "
            f"{tolerance.max_slowdown:g}. "
        )
    return text + "Measuring the best settings again (wastenot refine) makes more of it sure."


def describe_goal(goal: Goal) -> str:
    """What was asked for, in one line."""
    sure = "" if goal.confidence is None else f" with {percent(goal.confidence, 1)} confidence"
    sure = ", by the numbers as measured" if not goal.corrected else sure
    bound = "" if goal.max_slowdown is None else f" at no more than {percent(goal.max_slowdown)} slowdown{sure}"
    match goal.kind:
        case "waste":
            if not goal.max_slowdown:
                return f"least energy with no slowdown{sure if sure.startswith(',') else sure and ',' + sure}"
            if goal.max_slowdown < 0:
                return f"least energy at a speed-up of at least {percent(-goal.max_slowdown)}{sure}"
            return f"least energy{bound}"
        case "edp":
            exponent = "" if goal.edp_exponent in (None, 1.0) else f" to the power of {goal.edp_exponent:g}"
            return f"least energy × time{exponent}{bound or sure}"
        case _:
            return f"least {goal.kind}, whatever the {'time' if goal.kind == 'energy' else 'energy'}{sure}"


def warnings(plan: Plan) -> tuple[str, ...]:
    """What a reader must know before using the plan."""
    doubts = (
        NATURAL_NOTE if plan.state == "natural" else None,
        coverage_note(plan.coverage),
        capture_note(plan.captured_on),
        implausible_power(plan.baseline.time_s, plan.baseline.energy_j),
        strictness_note(plan),
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
    if row.fits or row.late_time_change is not None:
        late = "what that costs is not known"
        if row.late_time_change is not None:
            late = f"that adds about {change(row.late_time_change)} time and {change(row.late_energy_change)} energy"
            late += " to the numbers above" if row.fits else ", so that the slowdown would not be kept"
        return (
            f"This plan switches clocks {count} and stays at least {stay} at a setting; {known} {switch}. Until a switch "
            f"has taken effect the setting before remains: {late}."
        )
    return (
        f"The saving is what these clocks are worth if switching were free. This plan switches them {count} and stays at a "
        f"setting for as little as {stay}; {known} {switch}."
    )


def _what_to_expect(plan: Plan) -> str:
    """How far the numbers can be trusted: measured again, promised, or as they stand."""
    expected = plan.expected
    match plan.headline.source:
        case "validation":
            assert plan.validation is not None
            text = f"Measured {plan.validation.repeats} times, interleaved with auto."
            if expected is not None:
                text += f" Expected were energy {change(expected.energy_change)} and time {change(expected.time_change)}."
            return text
        case "promise":
            return (
                "Expected, not yet measured: corrected for noise and for the luck of choosing among noisy numbers. "
                "wastenot validate measures it."
            )
    text = "These numbers are as measured"
    if plan.objective.max_slowdown is not None or expected is None:
        text += ", and promise nothing: choosing the best of noisy measurements favours lucky ones"
    if expected is None:
        return (
            f"{text}. Nothing in this study says how noisy it is; repeats or standard errors (time_se_s, energy_se_j) would "
            "let the plan be sure."
        )
    saving, slowdown = expected.energy_change_interval, expected.time_change_interval
    kept = expected.probability_within_budget
    odds = "" if kept is None else f"; the slowdown limit holds with a probability of {percent(kept, 0)}"
    return (
        f"{text}. Corrected for this, expect energy {change(expected.energy_change)} ({change(saving[0])} to "
        f"{change(saving[1])}) and time {change(expected.time_change)} ({change(slowdown[0])} to {change(slowdown[1])}), "
        f"each with {percent(expected.level, 0)} probability{odds}."
    )


def _duration(seconds: float) -> str:
    """A duration that is a round number, as one."""
    value, unit = quantity(seconds, "s", 3).split(SPACE)
    return f"{float(value.replace(',', '')):g}{SPACE}{unit}"


def _interval(interval: tuple[float, float] | None, written: Callable[[float], str]) -> str:
    """An interval to put before other details; nothing where there is none."""
    return "" if interval is None else f"{written(interval[0])} to {written(interval[1])} with 95{SPACE}%, "


def _limit(plan: Plan) -> tuple[Card, ...]:
    verdict = limit_verdict(plan)
    if verdict is None:
        return ()
    value, _, detail = verdict.partition(": ")
    if not detail:
        value, detail = "promised", verdict
    return (Card("Slowdown limit", value, detail),)


def _potential(plan: Plan) -> tuple[Card, ...]:
    """What the numbers as they stand would seem to give."""
    if plan.potential is None:
        return ()
    return (
        Card(
            "Best of the numbers as measured",
            percent(-plan.potential.energy_change),
            f"at {change(plan.potential.time_change)} time, lucky numbers included: what not to expect (--as-measured)",
        ),
    )


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
    if plan.objective.corrected:
        budget += "" if confidence is None else f" with {percent(confidence, 1)} confidence"
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
    if row is None or row.energy_change is None or row.time_change is None:
        why = "; plan by pass or iteration" if plan.applicable is None else ", and there is none with one setting"
        return Card(label, "nothing", f"the device switches too slowly for this plan{why}")
    energy_change, time_change = row.energy_change, row.time_change
    if row.granularity == plan.granularity:
        energy_change, time_change = plan.headline.energy_change, plan.headline.time_change
    energy_change += row.late_energy_change or 0.0
    time_change += row.late_time_change or 0.0
    late = "" if row.late_time_change is None else ", late switches included"
    what = f"saved with clocks by {row.granularity}, time {change(time_change)}{late}"
    if row.setting is not None:
        setting = row.setting.setting
        what = f"saved with one setting, time {change(time_change)}: {'; '.join(row.commands) or setting}"
        if setting.is_auto:
            what = "no single setting is better than the default clocks: nothing to set"
    return Card(label, percent(-energy_change), what)
