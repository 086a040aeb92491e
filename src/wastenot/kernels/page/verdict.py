"""What of a plan can be had today, how that is known, and whether its slowdown limit was kept, as one sentence."""

from __future__ import annotations

from wastenot.core.origin import Origin
from wastenot.core.wording import counted
from wastenot.pages import formatting
from wastenot.pages.formatting import SPACE, change, changes, digits_within, percent
from wastenot.pages.panel import Tone
from wastenot.planning.applicable_today import Today, applicable_today
from wastenot.planning.headline import Headline
from wastenot.planning.plan import Plan

_FROM: dict[Origin, str] = {
    "measured": "",
    "simulated": " on a simulated GPU",
    "synthetic": " on synthetic numbers",
    "forecast": " on forecast numbers",
}
_SEEN = 5e-5  # changes below this are shown as none


def verdict_of(plan: Plan) -> tuple[Tone, str, str, str]:
    """What of a plan can be had today: how sure that is, what it does and how, and how that is known."""
    if is_default(plan):
        return "neutral", "Nothing to set, the default clocks stay", "", _why_default(plan)
    today = plan.today
    tone, known = known_of(plan)
    if today.whole:
        return tone, effect(plan), range_of(plan, today), known
    if not today.sets_something:
        return "neutral", "Nothing to apply today", "", why_nothing_today(plan)
    if plan.headline.source == "validation":  # of what cannot be had today, but by the same numbers
        again, known = _before_validation(plan)
        tone = again if tone == "kept" else tone
    return tone, effect(plan, today), "; ".join(filter(None, (_way(today), range_of(plan, today)))), known


def missing_of(plan: Plan) -> str:
    """That what can be had today was not measured again; nothing where it was, or where nothing is promised."""
    promised = plan.expected is not None and plan.objective.corrected and not is_default(plan) and plan.today.sets_something
    return "not validated yet" if promised and (plan.headline.source != "validation" or not plan.today.whole) else ""


def known_of(plan: Plan) -> tuple[Tone, str]:
    """How sure a plan is, and how its numbers are known, with switching free where they have it so."""
    if plan.headline.source == "validation":
        return _of_validation(plan)
    return _before_validation(plan)


def _before_validation(plan: Plan) -> tuple[Tone, str]:
    if plan.expected is not None and plan.objective.corrected:
        return _of_promise(plan)
    return "as-measured", f"by the {_adjective(plan)}numbers{_of_part(plan)} as measured, which promise nothing"


def _way(today: Today) -> str:
    """How it is applied, in a few words."""
    if today.rung is not None:
        return f"by a schedule of {counted(today.rung.switches, 'switch')} per iteration"
    assert today.row is not None
    return "by one setting for the whole iteration" if today.row.setting is not None else "by clocks for each pass"


def range_of(plan: Plan, told: Today | Headline) -> str:
    """What the true change of what the plan is for lies in; nothing where that is not known."""
    interval = told.time_change_interval if plan.objective.saves_time else told.energy_change_interval
    if interval is None:
        return ""
    what = "time" if plan.objective.saves_time else "energy"
    return f"{what} {changes(interval)} (95{SPACE}%)"


def why_nothing_today(plan: Plan) -> str:
    """Why nothing of a plan can be set, though it is not the default clocks."""
    found = applicable_today(plan)
    if found.finest is None and plan.applicable is None:
        return "the device switches too slowly for this plan; plan by pass or iteration"
    if found.finest is None:
        return "the device switches too slowly for this plan, and there is no such plan with one setting"
    return "clocks switch too slowly for this plan, and no single setting does better than the default clocks"


def is_default(plan: Plan) -> bool:
    """Whether a plan leaves every kernel at the default clocks."""
    return all(row.setting.is_auto for row in plan.assignments)


def origin_of_validation(plan: Plan) -> Origin:
    """Where the numbers of a validation come from: the device that it ran on tells."""
    on_simulator = plan.validation is not None and plan.validation.device.startswith("sim:")
    return "simulated" if on_simulator else plan.origin


def effect(plan: Plan, today: Today | None = None) -> str:
    """What a plan does to energy and time, such as ``Saves 7.88 % of the energy, 0.24 % faster``.

    Args:
        plan: of whose headline to tell.
        today: what of it to tell instead.
    """
    told = plan.headline if today is None else today
    source = plan.headline.source
    if today is not None and source == "validation":
        source = "promise" if plan.expected is not None and plan.objective.corrected else "measurements"
    before = {"validation": "", "promise": "Expected to ", "measurements": "Seems to "}[source]
    if plan.origin == "forecast" and source != "validation":
        before = "Forecast to "

    def verb(word: str) -> str:
        return before + word if before else f"{word.capitalize()}s"

    if plan.objective.saves_time:
        return f"{verb('run')} {pace(told.time_change)}, {energy_words(told.energy_change)}"
    if abs(told.energy_change) < _SEEN:
        saved = f"{verb('save')} no energy"
    elif told.energy_change < 0.0:
        saved = f"{verb('save')} {_rounded(-told.energy_change, told.energy_change_interval)} of the energy"
    else:
        saved = f"{verb('use')} {_rounded(told.energy_change, told.energy_change_interval)} more energy"
    return f"{saved}, {pace(told.time_change)}"


def _rounded(change: float, interval: tuple[float, float] | None) -> str:
    """A change to the digits that its interval allows."""
    return percent(change, digits_within(interval))


def pace(time_change: float) -> str:
    """A change of time in words: ``0.24 % faster``, ``at the same speed``."""
    if abs(time_change) < _SEEN:
        return "at the same speed"
    return formatting.pace(time_change)


def limit_words(limit: float) -> str:
    """What a slowdown limit allows: ``no slowdown``, ``at most 2 % slower``, ``at least 1 % faster``."""
    if limit == 0.0:
        return "no slowdown"
    return f"at most {short_percent(limit)} slower" if limit > 0.0 else f"at least {short_percent(-limit)} faster"


def short_percent(fraction: float) -> str:
    """A round fraction in per cent, without needless digits: ``2 %``, ``0.1 %``."""
    return f"{100.0 * fraction:.6g}{SPACE}%"


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
            return f"undecided: measured {measured}, {side} the limit of {bound} by less than the measurement can resolve"
    if headline.source == "promise" and plan.objective.confidence is not None:
        return f"at most {bound}, with {percent(plan.objective.confidence, 1)} confidence"
    return None


def energy_words(energy_change: float) -> str:
    """A change of energy beside one of time: ``with 2.10 % less energy``."""
    if abs(energy_change) < _SEEN:
        return "with the same energy"
    return f"with {percent(abs(energy_change))} {'less' if energy_change < 0.0 else 'more'} energy"


def _of_validation(plan: Plan) -> tuple[Tone, str]:
    """Measured again: whether the limit was kept."""
    headline, limit = plan.headline, plan.objective.max_slowdown
    measured = f"measured{_FROM[origin_of_validation(plan)]}"
    if limit is None:
        return "neutral", f"{measured}; no slowdown limit was set"
    allowed = f"({limit_words(limit)})"
    if headline.verdict == "kept":
        return "kept", f"{measured}, the limit {allowed} is kept"
    if headline.verdict == "missed":
        return "missed", f"{measured}, the limit {allowed} is missed by {percent(headline.missed_by or 0.0)} of the time"
    return "undecided", f"{measured}, too close to the limit {allowed} to decide"


def _of_promise(plan: Plan) -> tuple[Tone, str]:
    """Expected, corrected for noise: which slowdown is promised."""
    limit, confidence = plan.objective.max_slowdown, plan.objective.confidence
    part = _of_part(plan)
    source = f", from {_adjective(plan)}numbers{part}" if part or plan.origin != "measured" else ""
    if limit is None or confidence is None:
        return "promised", f"corrected for noise{source}; no slowdown limit was set"
    promised = f"promised with {short_percent(confidence)} confidence"
    sure = f"no slower than the default clocks, {promised}" if limit == 0.0 else f"{limit_words(limit)} is {promised}"
    return "promised", f"{sure}{source}"


def _of_part(plan: Plan) -> str:
    """That only part of what was intended is measured."""
    coverage = plan.coverage
    if coverage is None or coverage.finished or coverage.of is None:
        return ""
    kind = "search" if coverage.kind == "search" else "sweep"
    if coverage.measured == coverage.of:  # what is missing are repeats
        return f" of an unfinished {kind}"
    return f" of an incomplete {kind} ({coverage.measured:,} of {coverage.of:,})"


def _why_default(plan: Plan) -> str:
    goal = plan.objective
    if plan.coverage is not None and plan.coverage.kind == "auto":
        return "no others were measured"
    if goal.confidence is not None and goal.max_slowdown is not None:
        than = "no slower" if goal.max_slowdown == 0.0 else limit_words(goal.max_slowdown)
        return f"no other setting is {than} with {short_percent(goal.confidence)} confidence"
    basis = "after correction for noise" if goal.corrected else f"by the {_adjective(plan)}numbers as measured"
    return f"{basis}, no other setting does better"


def _adjective(plan: Plan) -> str:
    """``simulated `` and so on before the word numbers; nothing where they are measured."""
    return "" if plan.origin == "measured" else f"{plan.origin} "
