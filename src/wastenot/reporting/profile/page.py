"""Power profiles as one HTML page: one in full, or several side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime

from wastenot.devices.instrument import TOTAL
from wastenot.files import write_text
from wastenot.profiling.result import Profile
from wastenot.reporting.plan.tables import Table
from wastenot.reporting.plan.totals import Total
from wastenot.reporting.profile.figures import draw_profiles, origin_of
from wastenot.reporting.profile.words import (
    difference,
    energy_words,
    facts,
    profiles_table,
    sensor_words,
    shortfall,
    state_table,
    subject,
    subtitle,
    unit_word,
    watts,
)
from wastenot.reporting.shell import render
from wastenot.reporting.words import change, quantity


def write_profile_page(
    profiles: Sequence[Profile],
    path: str | os.PathLike[str],
    *,
    relative: bool = False,
    made_at: datetime | None = None,
) -> None:
    """Write the page.

    Args:
        profiles: one, which is shown in full, or several, which are set side by side.
        path: the HTML file to make or replace.
        relative: power of several as a share of the largest, instead of watts.
        made_at: date shown on the page; now where not given.

    Raises:
        BadInputError: there is no profile, or the file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    write_text(path, render_profile_page(profiles, relative=relative, made_at=made_at or datetime.now(UTC)))


def render_profile_page(profiles: Sequence[Profile], *, relative: bool = False, made_at: datetime) -> str:
    """The page as text; see :func:`write_profile_page`."""
    figures = draw_profiles(profiles, relative=relative)
    tables: list[tuple[str, Table]]
    if len(profiles) == 1:
        profile = profiles[0]
        about = [("Device", f"{profile.device}: {profile.model}"), ("Driver", profile.driver)]
        about += [(name.capitalize(), words) for name, words in facts(profile)]
        about += [("Sensor", words) for words in sensor_words(profile)]
        title, where, cards, tables = (
            subject(profile),
            subtitle(profile),
            _cards(profile),
            [("states", state_table(profile))],
        )
    else:
        title = f"{len(profiles)} power profiles"
        where = " · ".join(dict.fromkeys(f"{profile.device}, {profile.origin} numbers" for profile in profiles))
        about = [("Devices", ", ".join(dict.fromkeys(profile.device for profile in profiles)))]
        cards, tables = [], [("profiles", profiles_table(profiles, relative=relative))]
    return render(
        "profile.html.j2",
        origin_of(profiles),
        figures,
        tables,
        made_at,
        title=title,
        facts=about,
        cards=cards,
        notes=_notes(profiles),
        about=where,
    )


def _cards(profile: Profile) -> list[Total]:
    """What a reader looks for first: power of each state, and how much they differ."""
    cards = []
    shown = {state.unit: state for state in profile.states}
    for state in shown.values():
        inside = state.channels.get(TOTAL)
        if inside is None:
            continue
        names = " = ".join(other.name for other in profile.states if other.unit == state.unit)
        detail = f"{unit_word(profile)} {state.unit}, {quantity(state.time_s, 's')}, {energy_words(state)}"
        cards.append(Total(f"Power, {names}", watts(inside.mean_w, inside.mean_error_w), detail, main=True))
    moved = difference(profile)
    if moved is not None and len(shown) > 1:
        cards.append(Total("From SSE to SSP", change(moved, 1), "power, at execution times that are alike"))
    if profile.counter is not None:
        against = f"profile against energy counter, over {quantity(profile.counter.seconds, 's', 3)}"
        cards.append(Total("Agreement", change(profile.counter.difference), against))
    return cards


def _notes(profiles: Sequence[Profile]) -> list[str]:
    notes = []
    for profile in profiles:
        name = f"{subject(profile)}: " if len(profiles) > 1 else ""
        if not profile.complete:
            notes.append(f"{name}incomplete: {shortfall(profile)}.")
        notes += [f"{name}{note}" for note in profile.notes]
    return notes
