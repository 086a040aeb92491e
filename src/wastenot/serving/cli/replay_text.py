"""What ``wastenot serve control --replay`` prints: what would have been saved, what it costs, and how far to trust it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.serving.control.replay import Replay


def replay_text(found: Replay) -> RenderableType:
    """A replay, for a terminal."""
    from wastenot.pages.formatting import percent
    from wastenot.serving.control.history import plain
    from wastenot.serving.page.replay_words import added, amounts, clock_text, effect_text, notes, of_servers
    from wastenot.terminal.tables import Group, Text, headline, plain_table

    head = headline(
        found.model or "engine", found.device or "an unnamed device", found.evidence, f"the last {found.hours:g} h"
    )
    saving = Text(
        f"{effect_text(found)} of {of_servers(found)}, {' of '.join(amounts(found))} (by the profile)", style="bold"
    )
    table = plain_table(
        ("server",),
        ("saved", "time per token", "added", "meets deadlines", "clock", "changes", "counted"),
        less_important=("changes", "counted", "clock"),
    )
    for each in found.servers:
        table.add_row(
            Text(plain(each.instance)),
            percent(each.saved, 1),
            "–" if each.default_tbt_s is None else f"{1e3 * each.default_tbt_s:.3g} ms",
            "–" if (more := added(each)) is None else percent(more, 1, sign=True),
            percent(each.kept_s / each.covered_s, 1),
            clock_text(each),
            f"{len(each.changes):,}",
            f"{each.covered_s / 60.0:.0f} min",
        )
    return Group(head, saving, "", table, "", *(Text(f"- {note}") for note in notes(found)))
