"""What ``wastenot serve control --replay`` prints: what would have been saved, what it costs, and how far to trust it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.serving.control.replay import Replay, ReplayedServer

_RATHER_OFF = 0.2
"""Of the measured time between tokens, from which on the profile is said to be of another engine."""


def replay_text(found: Replay) -> RenderableType:
    """A replay, for a terminal."""
    from wastenot.core.wording import counted
    from wastenot.pages.formatting import percent
    from wastenot.serving.control.history import plain
    from wastenot.terminal.tables import Group, Text, headline, plain_table

    head = headline(
        found.model or "engine", found.device or "an unnamed device", found.evidence, f"the last {found.hours:g} h"
    )
    total_j = sum(each.default_energy_j for each in found.servers)
    saved_j = total_j - sum(each.energy_j for each in found.servers)
    amounts = f"{_energy(saved_j, total_j)} of {_energy(total_j, total_j)}"
    saving = Text(
        f"serve control would have saved {percent(found.saved, 1)} of the energy of "
        f"{counted(len(found.servers), 'server')}, {amounts} (by the profile)",
        style="bold",
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
            "–" if _added(each) is None else percent(_added(each) or 0.0, 1, sign=True),
            percent(each.kept_s / each.covered_s, 1),
            _clock(each),
            f"{len(each.changes):,}",
            f"{each.covered_s / 60.0:.0f} min",
        )
    notes = [note for each in found.servers for note in _notes(each, several=len(found.servers) > 1)]
    return Group(head, saving, "", table, "", *(Text(f"- {note}") for note in (*notes, *_caveats())))


def _added(server: ReplayedServer) -> float | None:
    return None if server.tbt_s is None or not server.default_tbt_s else server.tbt_s / server.default_tbt_s - 1.0


def _clock(server: ReplayedServer) -> str:
    """Where most of the time was spent."""
    name, seconds = max(server.clocks.items(), key=lambda each: each[1])
    share = f" ({100.0 * seconds / server.covered_s:.0f} %)"
    return ("default" if name == "0" else f"{float(name):,.0f} MHz") + share


def _notes(server: ReplayedServer, *, several: bool) -> Iterator[str]:
    from wastenot.core.wording import counted
    from wastenot.pages.formatting import duration, percent
    from wastenot.serving.control.history import plain

    of = f"{plain(server.instance)}: " if several else ""
    yield (
        f"{of}{counted(server.scrapes, 'scrape')}, one every {duration(server.scrape_s)}: bursts shorter than that are not "
        "seen, and the live controller, which reads once a second, follows the load sooner"
    )
    if server.measured_tbt_s is not None and server.default_tbt_s is not None:
        off = server.default_tbt_s / server.measured_tbt_s - 1.0
        said = f"{of}the server measured a median of {1e3 * server.measured_tbt_s:.3g} ms between tokens; the profile says "
        said += f"{1e3 * server.default_tbt_s:.3g} ms on average at the default clocks"
        if abs(off) > _RATHER_OFF:
            more = "more" if off > 0 else "less"
            said += f", {percent(abs(off), 0)} {more}: correct it by the server's own steps (serve profile --from)"
        yield said
    odd = [
        (server.gaps, "gap without scrapes", "gaps without scrapes"),
        (server.restarts, "restart", "restarts"),
        (server.unreadable, "scrape with values that cannot be", "scrapes with values that cannot be"),
    ]
    left = [f"{count:,} {one if count == 1 else more}" for count, one, more in odd if count]
    if left:
        yield f"{of}not counted: {', '.join(left)}"
    if server.steps_up:
        yield (
            f"{of}measured latencies missed deadlines at the clocks that were set then, so up to "
            f"{counted(server.steps_up, 'clock step')} were added to the profile's choice"
        )


def _caveats() -> Iterator[str]:
    yield (
        "energies are the profile's, not measured, for the rate of tokens in the history; latencies in the history are "
        "those at the clocks that were set then, taken to be the default ones"
    )
    yield "prompt tokens from a prefix cache count as computed"


def _energy(joules: float, like_j: float) -> str:
    """An energy, in the unit of another."""
    return f"{joules / 3.6e6:.3g} kWh" if like_j >= 3.6e6 else f"{joules / 3.6e3:.3g} Wh"
