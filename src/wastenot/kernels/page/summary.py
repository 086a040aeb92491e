"""The plan in numbers: what it was chosen from and asked for, what it is worth, its proof; what to know before using it."""

from __future__ import annotations

from wastenot.core.wording import counted
from wastenot.kernels.page.story import saved_joules
from wastenot.kernels.page.verdict import is_default
from wastenot.pages.formatting import SPACE, change, percent, quantity, shortened
from wastenot.pages.page import Card
from wastenot.pages.price import SECONDS_PER_YEAR, Price, energy_text
from wastenot.planning.plan import Goal, Plan
from wastenot.study.coverage import Coverage
from wastenot.study.plausible import implausible_power
from wastenot.workloads.captured_on import capture_note


def among(coverage: Coverage | None) -> str:
    """The points that a plan is the best of; completes "among ...".

    Args:
        coverage: of the plan; ``None`` in plans of earlier versions.
    """
    if coverage is None:
        return "the points measured"
    some = f"the {coverage.measured:,}"
    by_kind = {
        "given": f"the {counted(coverage.measured, 'point')} given",
        "auto": "the default clocks alone",
        "refine": f"the {counted(coverage.measured, 'point')} measured, a plan's finalists",
        "natural": "caps within the clocks that each kernel was seen at",
    }
    if coverage.kind in by_kind:
        return by_kind[coverage.kind]
    assert coverage.of is not None
    if coverage.complete:
        return f"all {coverage.measured:,} points of the grid"
    return f"{some} of {coverage.of:,} points measured"


def coverage_note(coverage: Coverage | None) -> str | None:
    """What a reader must know of points that were not measured; ``None`` where there is nothing to say."""
    if coverage is None or coverage.complete or coverage.kind == "given":
        return None
    if coverage.kind == "refine":
        return "Only the finalists of a plan were measured here; other settings may be better. Sweep this card to find out."
    assert coverage.of is not None
    if coverage.kind == "natural":
        command = f": {coverage.command}" if coverage.command else " by running the same command again"
        return f"Incomplete: {coverage.measured:,} of {coverage.of:,} kernels are measured. Resume the sweep{command}"
    measured = f"{coverage.measured:,} of the {coverage.of:,} points intended are measured"
    better = "a point that was not measured may be better"
    if not coverage.finished:
        command = f": {coverage.command}" if coverage.command else " by running the same command again"
        what = "search" if coverage.kind == "search" else "sweep"
        return f"Incomplete: the {what} was interrupted or is still running; {measured}, and {better}. Resume it{command}"
    if coverage.kind == "search":
        return f"Found by a search: {measured}, the most promising ones; {better}. Sweep without --search to measure all."
    return f"Incomplete: {measured}; {better}. The sweep finished without the others."


ITERATIONS = 1_000  # that energy and cost are stated for
_LONGEST_NAME = 40
_WORTH_SAYING = 0.005  # of the energy, by which a tolerance must save more
_SAME = 1e-6  # fractions that are one number

NATURAL_NOTE = (
    "No clock was set: this is a plan of caps on core clocks, from times and powers at clocks that the GPU passed "
    "through by itself. A cap above a kernel's own clock changes nothing; caps below the clocks seen are not offered. "
    "In an iteration all kernels run near one clock, and one cap saves energy only below it: see wastenot kernel natural."
)


def plan_numbers(plan: Plan, price: Price | None) -> tuple[Card, ...]:
    """What else there is to know of a plan in numbers, beside its story.

    Args:
        plan: to summarise.
        price: of electricity; without it no cost is stated.
    """
    kernels = counted(len(plan.assignments), "kernel")
    fastest = "expected (corrected for noise; less can be promised) " if plan.objective.corrected else "as measured "
    return (
        Card("Objective", describe_goal(plan.objective), f"clocks by {plan.granularity}, {plan.scope} scope; {kernels}"),
        *_money(plan, price),
        *_waste(plan),
        *_potential(plan),
        _certificate(plan),
        _switches(plan),
        Card(
            "Largest time saving",
            percent(max(0.0, -plan.fastest.time_change)),
            f"{quantity(plan.fastest.time_s, 's', 5)} per iteration is the fastest {fastest}with the clocks measured, "
            "whatever the energy",
        ),
    )


def strictness_note(plan: Plan) -> str | None:
    """What a strict plan gives up by being sure, and what a tolerance would give; ``None`` where there is nothing to say."""
    confidence, tolerance = plan.objective.confidence, plan.tolerance
    if confidence is None or tolerance is None or is_default(plan):  # the story of the default clocks says it by itself
        return None
    if tolerance.energy_change >= plan.headline.energy_change - _WORTH_SAYING:
        return None
    low, high = tolerance.energy_change_interval
    return (
        f"Being no slower with {percent(confidence, 1)} confidence gives up much of the saving. A tolerance "
        f"of {percent(tolerance.max_slowdown, 1)}, less than a run can show, would save {percent(-tolerance.energy_change)} "
        f"({percent(-high)} to {percent(-low)}): --max-slowdown {tolerance.max_slowdown:g}. Measuring the best settings "
        "again (wastenot kernel refine) makes more of it certain."
    )


def describe_goal(goal: Goal) -> str:
    """What was asked for, in one line."""
    sure = "" if goal.confidence is None else f" with {percent(goal.confidence, 1)} confidence"
    sure = ", by the numbers as measured" if not goal.corrected else sure
    objective, limit = goal.objective, goal.max_slowdown
    least = f"least {objective.rules.words(objective)}"
    if objective.rules.limit == "none":
        return f"{least}, whatever the {'energy' if goal.saves_time else 'time'}{sure}"
    if limit is None:
        return f"{least}{sure}"
    if limit == 0.0:
        return f"{least} with no slowdown{sure if sure.startswith(',') else sure and ',' + sure}"
    if limit < 0.0:
        return f"{least} at a speed-up of at least {percent(-limit)}{sure}"
    return f"{least} at no more than {percent(limit)} slowdown{sure}"


def warnings(plan: Plan) -> tuple[str, ...]:
    """What a reader must know before using the plan, beside its story; often nothing."""
    doubts = (
        NATURAL_NOTE if plan.state == "natural" else None,
        coverage_note(plan.coverage),
        capture_note(plan.captured_on),
        implausible_power(plan.baseline.time_s, plan.baseline.energy_j),
        strictness_note(plan),
    )
    return tuple(doubt for doubt in doubts if doubt is not None)


def _money(plan: Plan, price: Price | None) -> tuple[Card, ...]:
    """Energy and cost of a thousand iterations, and of the work that one GPU does in a year."""
    saved_j, baseline_j = saved_joules(plan), plan.baseline.energy_j
    a_year = SECONDS_PER_YEAR / plan.baseline.time_s

    def card(label: str, iterations: float, what: str) -> Card:
        saved, of = saved_j * iterations, baseline_j * iterations
        worth, whole = ("no electricity price was given", "")
        if price is not None:
            worth = f"{price.cost_text(abs(saved))} at {price.per_kwh:g} {price.currency} per kWh"
            whole = f", {price.cost_text(of)}"
        value = f"{energy_text(abs(saved))} {'saved' if saved >= 0.0 else 'more'}"
        return Card(label, value, f"{worth}; {what} {energy_text(of)}{whole} at the default clocks")

    return (
        card(f"{ITERATIONS:,} iterations", ITERATIONS, "they use"),
        card("A GPU-year", a_year, "for the work that one GPU does in 8,760 h, which uses"),
    )


def _waste(plan: Plan) -> tuple[Card, ...]:
    """What the default clocks waste, unless the plan saves exactly that."""
    if abs(plan.waste.share + plan.headline.energy_change) < _SAME:
        return ()
    if plan.waste.joules == 0.0:
        return (Card("Waste at the default clocks", "none", "no other setting saves energy at 0 % slowdown"),)
    sure = (
        "; this assumes the true times; a plan that must be no slower with confidence saves less"
        if plan.objective.corrected
        else ""
    )
    return (
        Card(
            "Waste at the default clocks",
            percent(plan.waste.share),
            f"{quantity(plan.waste.joules, 'J')} per iteration could be saved at 0{SPACE}% slowdown "
            f"({plan.granularity} granularity){sure}",
        ),
    )


def _potential(plan: Plan) -> tuple[Card, ...]:
    """What the numbers as measured would seem to give."""
    if plan.potential is None or percent(plan.potential.energy_change) == percent(plan.headline.energy_change):
        return ()
    return (
        Card(
            "Potential",
            percent(-plan.potential.energy_change),
            f"at {change(plan.potential.time_change)} time: the best of the numbers as measured, favourable errors "
            "included; do not expect it (--as-measured)",
        ),
    )


def _certificate(plan: Plan) -> Card:
    bound, confidence, coverage = plan.certificate, plan.objective.confidence, plan.coverage
    value = f"within {percent(bound.gap, 2 if bound.gap >= 5e-5 else 4)}"
    if bound.gap == 0.0:
        whole = coverage is not None and coverage.complete
        known = "given" if coverage is not None and coverage.kind == "given" else "measured"
        value = "proven optimal" if whole else f"best of those {known}"
    sure = "" if confidence is None or not plan.objective.corrected else f" with {percent(confidence, 1)} confidence"
    uses = "is expected to use" if plan.objective.corrected else "uses"
    least = f"no plan within the time allowed{sure} {uses} less than {quantity(bound.lower_bound_j, 'J', 5)}"
    return Card("Certificate", value, f"proved among {among(coverage)}: {least}")


def _switches(plan: Plan) -> Card:
    switches = plan.switches
    if switches.mean_dwell_s is None:
        return Card("Clock switches", "none", "the clocks are set once and stay")
    detail = f"{quantity(switches.mean_dwell_s, 's', 3)} at a setting on average"
    if switches.shortest_dwell_s is not None and switches.shortest_dwell_unit is not None:
        unit = shortened(switches.shortest_dwell_unit, _LONGEST_NAME)
        detail += f", {quantity(switches.shortest_dwell_s, 's', 3)} at least ({unit})"
    return Card("Clock switches", f"{switches.per_iteration:,} per iteration", detail)
