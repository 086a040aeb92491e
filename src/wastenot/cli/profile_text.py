"""Power profiles as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from wastenot.cli.plan_text import about, rich_table
from wastenot.reporting.formatting import percent
from wastenot.reporting.profile.description import describe_sensors, difference, facts, shortfall, state_table, subject

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.profiling.result import Profile


def described_profile(profile: Profile) -> RenderableType:
    """States side by side, how well they are known, and what a reader should know."""
    known = RichTable.grid(padding=(0, 2))
    known.add_column(style="bold", no_wrap=True)
    known.add_column(overflow="fold")
    for name, words in (*facts(profile), *(("sensor", words) for words in describe_sensors(profile))):
        known.add_row(Text(name), Text(words))
    notes = [Text(f"note: {note}", style="yellow") for note in profile.notes]
    if not profile.complete:
        notes.insert(0, Text(f"INCOMPLETE: {shortfall(profile)}", style="bold yellow"))
    moved = difference(profile)
    if moved is not None and len({state.unit for state in profile.states}) == 1:
        says = "SSE and SSP are the same execution"
    elif moved is not None:
        says = f"power differs by {percent(abs(moved), 1)} between SSE and SSP, at execution times that are alike"
    else:
        says = ""
    head = about(subject(profile), profile.device, profile.origin, "power profile")
    shown: list[RenderableType] = ["", Text(says)] if says else []
    return Group(head, "", rich_table(state_table(profile)), *shown, "", known, *notes)


def about_profiles(profiles: Sequence[Profile]) -> Text:
    """The line above several: on what devices, and where the numbers come from."""
    devices = ", ".join(dict.fromkeys(profile.device for profile in profiles))
    origins = " and ".join(dict.fromkeys(profile.origin for profile in profiles))
    return about(f"{len(profiles)} power profiles", devices, origins, "mean power of an execution")
