"""The last lines of commands that do everything: what can be had today, what the whole plan would do, and whether it did."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wastenot.kernels.page.provenance import Files
    from wastenot.planning.plan import Plan


def ending(plan: Plan, files: Files) -> tuple[list[str], list[str]]:
    """What can be had today, and how; and what the whole plan would do, with the verdict where it was measured again."""
    from wastenot.kernels.page.applicable_panels import apply_command
    from wastenot.kernels.page.verdict import limit_verdict, limit_words
    from wastenot.pages.formatting import change, percent
    from wastenot.planning.applicable_today import applicable_today

    headline, expected, today, now, whole = plan.headline, plan.expected, plan.today, [], []
    within = ""
    if today.energy_change_interval is not None:
        low, high = today.energy_change_interval
        within = f" ({percent(-high)} to {percent(-low)})"
    how = "" if today.rung is None else f", by a schedule: {apply_command(files)}"
    if today.sets_something:
        now.append(f"Today     {percent(-today.energy_change)} of the energy saved{within}{how}")
    else:
        now.append("Today     nothing to set")
    finest = applicable_today(plan).finest
    if finest is not None and finest.commands and finest.energy_change is not None:
        name = "or       " if today.rung is not None else "         "
        now.append(f"{name} {percent(-finest.energy_change)}, with one setting: {'; '.join(finest.commands)}")
        if plan.origin == "simulated":
            now.append("          (sweep the real card before you set its clocks)")
    bound = "" if today.whole else ", if switching were instant"
    if expected is not None:
        low, high = expected.energy_change_interval
        limit = plan.objective.max_slowdown
        allowed = "" if limit is None else f", {'no slower' if limit == 0.0 else limit_words(limit)}"
        saved = f"{percent(-expected.energy_change)} ({percent(-high)} to {percent(-low)})"
        whole.append(f"{'Promised' if today.whole else 'At most '}  {saved}{bound}{allowed}")
    if headline.source == "validation":
        verdict = (limit_verdict(plan) or "no slowdown limit was set").partition(":")[0]
        saved = f"{percent(-headline.energy_change)} saved, time {change(headline.time_change)}"
        whole.append(f"Verdict   {verdict}: {saved}{bound} ({plan.origin})")
    return now, whole
