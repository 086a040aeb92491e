"""What a pipeline's plan says of switching: how long settings last, and what would be saved if switching were free."""

from __future__ import annotations

from wastenot.pages.formatting import SPACE, percent, quantity
from wastenot.pipelines.plan.plan import PipelinePlan
from wastenot.planning.switching import SwitchTime


def switching_text(plan: PipelinePlan) -> str:
    """How long the plan's settings last, by which numbers, and what it would save if switching took no time."""
    if plan.switching is not None:
        saved = percent(-plan.free_energy_change, 1)
        return f"settings last as long as a switch takes, {_known(plan.switching)}; were switching free: {saved} saved"
    inside = (
        "settings change inside instructions; between them it is " if any(len(way.clocks) > 1 for way in plan.ways) else ""
    )
    return f"{inside}taken as free; settings that last as long as a switch takes save less"


def _known(switching: SwitchTime) -> str:
    known = {
        "given": "as given",
        "measured": "as measured",
        "stated": "as stated by the device",
        "assumed": "assumed; give yours with --switch-time",
    }
    value, unit = quantity(switching.core_s, "s", 3).split(SPACE)
    return f"{float(value.replace(',', '')):g}{SPACE}{unit} ({known[switching.basis]})"
