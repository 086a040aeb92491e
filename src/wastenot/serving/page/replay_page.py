"""The page of a replay: what controlling the clocks would have saved, and the clocks over the hours beside the load."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from wastenot.core.wording import counted
from wastenot.pages.figure import Figure, inline, series_color, specification_of, tooltips
from wastenot.pages.optional_imports import load
from wastenot.pages.page import Page
from wastenot.pages.theme import CATEGORIES
from wastenot.serving.control.history import plain
from wastenot.serving.control.replay import Replay, ReplayedServer, Stretch
from wastenot.serving.page import replay_words
from wastenot.serving.page.over_time import panels_over_time
from wastenot.serving.page.policies_chart import PolicyBar, policies_chart

_HEIGHT = 130  # of a panel, in pixels
_MOST_SHOWN = 6  # servers in the figure
_PANELS = {
    "mhz": "core clock that would have been set, MHz",
    "tokens": "tokens generated per second",
    "running": "requests in the batch",
}
_HOURS_FROM_S = 3 * 3600.0


def replay_page(found: Replay) -> Page:
    """The page of a replay.

    Args:
        found: what to show, of :func:`wastenot.serve.replay`.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    effect = replay_words.effect_text(found)
    return Page(
        verb="serve control",
        brand="serve control",
        title=(found.model or "engine", f"on {found.device or 'an unnamed device'}"),
        origin=replay_words.origin_of(found),
        effect=effect[:1].upper() + effect[1:],
        verdict=replay_words.verdict_text(found),
        panels=replay_words.panels(found),
        next_step=replay_words.next_step(found),
        figures=[figure for figure in (energy_figure(found), timeline_figure(found)) if figure is not None],
        tables=[("servers", replay_words.servers_table(found))] if len(found.servers) > 1 else [],
        notes=replay_words.warnings(found),
        cannot_tell=replay_words.cannot_tell(found),
        source="energies and times by the profile, for the load that Prometheus recorded",
        about=_about(found),
        device=found.device,
        made_from=[("Load", f"metrics that Prometheus at {found.prometheus or 'an unnamed address'} kept"),
                   *([("Engine", found.engine)] if found.engine else [])],
    )  # fmt: skip


def _about(found: Replay) -> str:
    name = plain(found.servers[0].instance) if len(found.servers) == 1 else replay_words.of_servers(found)
    return f"{name} · the last {'hour' if found.hours == 1.0 else f'{found.hours:g} h'}"


def energy_figure(found: Replay) -> Figure | None:
    """Energy per token at the default clocks and as the controller would have set them; ``None`` without tokens."""
    token_j = replay_words.energies_per_token_j(found)
    if token_j is None:
        return None
    default_j, ours_j = token_j
    bars = [
        PolicyBar("default clocks", "compared with", *(default_j,) * 3, None, 0.0, attains=True),
        PolicyBar("serve control", "headline", *(ours_j,) * 3, found.saved, 0.0, attains=True),
    ]
    saved, total = replay_words.amounts(found)
    note = f"By the profile, for the load that was recorded: {total} at the default clocks, {saved} less as controlled."
    return Figure("replay-energy", "Energy per token", _about(found), note, specification_of(policies_chart(bars)))


def timeline_figure(found: Replay) -> Figure:
    """Clocks and load over time, a line for each server; lines are broken where nothing is counted."""
    shown = [each for each in found.servers if each.timeline][:_MOST_SHOWN]
    note = (
        "Lines are broken where the history has gaps; the controller then starts from the default clocks, which are drawn "
        "at the profile's maximum."
    )
    left = len(found.servers) - len(shown)
    if left:
        note += f" {counted(left, 'more server')} not drawn; the table has all."
    return Figure("replay-timeline", "Clocks and load", _about(found), note, specification_of(_chart(shown)))


def _chart(shown: Sequence[ReplayedServer]) -> Any:
    if not shown:
        return None
    alt = load("altair")
    begin_s = min(each.timeline[0].at_s for each in shown)
    end_s = max(each.timeline[-1].at_s + each.timeline[-1].lasted_s for each in shown)
    unit, unit_s = ("hours", 3600.0) if end_s - begin_s >= _HOURS_FROM_S else ("minutes", 60.0)
    rows = [row for each in shown for row in _rows(each, begin_s, unit_s)]
    colors = {plain(each.instance): CATEGORIES[index % len(CATEGORIES)] for index, each in enumerate(shown)}
    began = f"{datetime.fromtimestamp(begin_s, UTC):%H:%M} UTC"
    panels = {field: title for field, title in _PANELS.items() if any(row[field] is not None for row in rows)}

    def draw(field: str, x: Any, y: Any) -> list[Any]:
        color = alt.value(next(iter(colors.values())))
        if len(shown) > 1:
            color = series_color("server:N", colors, symbolType="stroke", symbolStrokeWidth=3, labelLimit=300)
        tip = tooltips({"server:N": "server", "at:Q": unit, f"{field}:Q": _PANELS[field]})
        lines = alt.Chart(inline(rows)).mark_line(strokeWidth=1.8, interpolate="step-after", clip=True)
        return [lines.encode(x=x, y=y, color=color, tooltip=tip)]

    span = (0.0, (end_s - begin_s) / unit_s)
    return panels_over_time(panels, f"{unit} since {began}", span, draw, height=_HEIGHT, ticks=4)


def _rows(server: ReplayedServer, begin_s: float, unit_s: float) -> list[dict[str, object]]:
    """The stretches of a server; one without values where they do not follow each other, and at the end."""
    rows: list[dict[str, object]] = []
    for each, after in pairwise([*server.timeline, None]):
        assert each is not None
        end_s = each.at_s + each.lasted_s
        rows.append(_row(server, each, (each.at_s - begin_s) / unit_s))
        if after is None or after.at_s > end_s + 1e-3:
            rows.append(_row(server, each, (end_s - begin_s) / unit_s))
            rows.append(_row(server, None, (end_s - begin_s) / unit_s))
    return rows


def _row(server: ReplayedServer, of: Stretch | None, at: float) -> dict[str, object]:
    values = (None, None, None) if of is None else (of.core_mhz, of.tokens_per_s, of.running)
    shown = (None if value is None else round(value, 2) for value in values)
    return {"server": plain(server.instance), "at": round(at, 5), **dict(zip(_PANELS, shown, strict=True))}
