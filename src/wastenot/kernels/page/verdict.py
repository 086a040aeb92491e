"""What a plan does, how that is known, and whether its slowdown limit was kept, as one sentence."""

from __future__ import annotations

from wastenot.core.origin import Origin
from wastenot.pages.formatting import SPACE, change, percent
from wastenot.pages.panel import Tone
from wastenot.planning.applicable import NEAR, Applicable, alone
from wastenot.planning.plan import Plan
from wastenot.planning.schedule import Rung

_FROM: dict[Origin, str] = {
    "measured": "",
    "simulated": " on a simulated GPU",
    "synthetic": " on made-up numbers",
    "forecast": " on forecast numbers",
}
_SEEN = 5e-5  # changes below this are shown as none


def verdict_of(plan: Plan) -> tuple[Tone, str, str]:
    """How sure a plan is: the tone, what the plan does, and how that is known."""
    if is_default(plan):
        return "neutral", "Nothing to set, the default clocks stay", _why_default(plan)
    match plan.headline.source:
        case "validation":
            tone, known = _of_validation(plan)
        case "promise":
            tone, known = _of_promise(plan)
        case _:
            known = (
                f"by the {_adjective(plan)}numbers{_of_part(plan)} as they stand, which promise nothing{_switching(plan)}"
            )
            tone = "as-measured"
    return tone, effect(plan), known


def is_default(plan: Plan) -> bool:
    """Whether a plan leaves every kernel at the default clocks."""
    return all(row.setting.is_auto for row in plan.assignments)


def applicable_today(plan: Plan) -> Applicable:
    """What of the plan could be set today; of a plan made without it only whether the plan itself could be."""
    return plan.applicable or alone(plan)


def scheduled_today(plan: Plan) -> Rung | None:
    """The plan's schedule, where it changes settings and does more than one setting for the whole iteration would."""
    if plan.schedule is None:
        return None
    best = plan.schedule.rungs[0]
    if best.switches == 0:
        return None
    one = next((row for row in applicable_today(plan).rows if row.setting is not None), None)
    if plan.objective.saves_time:
        held = 0.0 if one is None or one.time_change is None else min(0.0, one.time_change)
        return best if best.time_change < held - NEAR else None
    held = 0.0 if one is None or one.energy_change is None else min(0.0, one.energy_change)
    return best if best.energy_change < held - NEAR else None


def origin_of_validation(plan: Plan) -> Origin:
    """Where the numbers of a validation come from: the device that it ran on tells."""
    on_simulator = plan.validation is not None and plan.validation.device.startswith("sim:")
    return "simulated" if on_simulator else plan.origin


def effect(plan: Plan) -> str:
    """What a plan does to energy and time, such as ``Saves 7.88 % of the energy, 0.24 % faster``."""
    headline = plan.headline
    before = {"validation": "", "promise": "Expected to ", "measurements": "Seems to "}[headline.source]
    if plan.origin == "forecast" and headline.source != "validation":
        before = "Forecast to "

    def verb(word: str) -> str:
        return before + word if before else f"{word.capitalize()}s"

    if plan.objective.saves_time:
        what = pace(headline.time_change)
        return f"{verb('run')} {what}, {energy_words(headline.energy_change)}"
    if abs(headline.energy_change) < _SEEN:
        saved = f"{verb('save')} no energy"
    elif headline.energy_change < 0.0:
        saved = f"{verb('save')} {percent(-headline.energy_change)} of the energy"
    else:
        saved = f"{verb('use')} {percent(headline.energy_change)} more energy"
    return f"{saved}, {pace(headline.time_change)}"


def pace(time_change: float) -> str:
    """A change of time in words: ``0.24 % faster``, ``at the same speed``."""
    if abs(time_change) < _SEEN:
        return "at the same speed"
    return f"{percent(abs(time_change))} {'faster' if time_change < 0.0 else 'slower'}"


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
            return f"undecided: measured {measured}, {side} the limit of {bound} by less than the measurement can tell"
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
    measured = f"measured{_FROM[origin_of_validation(plan)]}{_switching(plan)}"
    if limit is None:
        return "neutral", f"{measured}; no slowdown limit was set"
    allowed = f"({limit_words(limit)})"
    if headline.verdict == "kept":
        return "kept", f"{measured}, the limit {allowed} is kept"
    if headline.verdict == "missed":
        return "missed", f"{measured}, the limit {allowed} is missed by {percent(headline.missed_by or 0.0)} of the time"
    return "undecided", f"{measured}, too close to the limit {allowed} to tell"


def _of_promise(plan: Plan) -> tuple[Tone, str]:
    """Expected, corrected for noise: which slowdown is promised."""
    limit, confidence = plan.objective.max_slowdown, plan.objective.confidence
    part = _of_part(plan)
    source = f", from {_adjective(plan)}numbers{part}" if part or plan.origin != "measured" else ""
    source += _switching(plan)
    if limit is None or confidence is None:
        return (
            "promised",
            f"corrected for noise{source}; not measured again yet, and no slowdown limit was set",
        )
    sure = f"{limit_words(limit)} is promised with {short_percent(confidence)} confidence"
    return "promised", f"{sure}{source}; not measured again yet"


def _switching(plan: Plan) -> str:
    """That a plan cannot be had with switches as slow as the device's."""
    return "" if applicable_today(plan).rows[0].fits else ", with free switching (not possible today)"


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
        return f"no other setting is sure to be {than}, with {short_percent(goal.confidence)} confidence"
    basis = "after correction for noise" if goal.corrected else f"by the {_adjective(plan)}numbers as they stand"
    return f"{basis}, no other setting does better"


def _adjective(plan: Plan) -> str:
    """``simulated `` and so on before the word numbers; nothing where they are measured."""
    return "" if plan.origin == "measured" else f"{plan.origin} "
