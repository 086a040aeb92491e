"""The last lines of verbs that do everything in one go: what was promised, whether it held, what could be set today."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wastenot.planning.plan import Plan


def ending(plan: Plan) -> list[str]:
    """The promise, the verdict where the plan was measured again, and what could be set today."""
    from wastenot.kernels.page.verdict import applicable_today, limit_verdict, limit_words, scheduled_today
    from wastenot.pages.formatting import change, percent

    headline, expected, lines = plan.headline, plan.expected, []
    if expected is not None:
        low, high = expected.energy_change_interval
        limit = plan.objective.max_slowdown
        allowed = "" if limit is None else f", {'no slower' if limit == 0.0 else limit_words(limit)}"
        lines.append(
            f"Promised  {percent(-expected.energy_change)} energy saved ({percent(-high)} to {percent(-low)}){allowed}"
        )
    if headline.source == "validation":
        verdict = (limit_verdict(plan) or "no slowdown limit was set").partition(":")[0]
        saved = f"{percent(-headline.energy_change)} saved, time {change(headline.time_change)}"
        lines.append(f"Verdict   {verdict}: {saved} ({plan.origin})")
    rung = scheduled_today(plan)
    if rung is not None:
        lines.append(f"Today     {percent(-rung.energy_change)}, by its schedule: wastenot apply PLAN.json -- COMMAND")
    finest = applicable_today(plan).finest
    if finest is not None and finest.commands and finest.energy_change is not None:
        name = "Today    " if rung is None else "or       "
        lines.append(f"{name} {percent(-finest.energy_change)}, with one setting: {'; '.join(finest.commands)}")
        if plan.origin == "simulated":
            lines.append("          (sweep the real card before you set its clocks)")
    return lines
