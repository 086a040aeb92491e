"""The report of power profiles: one in full, or several side by side, as an HTML page and as figure files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from wastenot.devices.instrument import TOTAL
from wastenot.errors import BadInputError
from wastenot.files import write_text
from wastenot.origin import Origin
from wastenot.profiling.result import Profile
from wastenot.reporting.figure import Figure, export_figures
from wastenot.reporting.formatting import change, quantity
from wastenot.reporting.html_page import Card, render
from wastenot.reporting.profile.comparison_figures import components_figure, contexts_figure, shapes_figure
from wastenot.reporting.profile.description import (
    describe_sensors,
    difference,
    energy_text,
    facts,
    profiles_table,
    shortfall,
    state_table,
    subject,
    subtitle,
    unit_word,
    watts,
)
from wastenot.reporting.profile.inside_figure import inside_figure
from wastenot.reporting.profile.method_figure import method_figure
from wastenot.reporting.profile.run_figure import run_figure
from wastenot.reporting.table import Table


def write_profile_page(
    profiles: Sequence[Profile], path: str | os.PathLike[str], *, relative: bool = False, made_at: datetime | None = None
) -> None:
    """Write the page.

    Args:
        profiles: one, shown in full, or several, shown side by side.
        path: the HTML file to create or replace.
        relative: show the power of several as a fraction of the largest, instead of watts.
        made_at: date shown on the page; now by default.

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
        about += [(name.capitalize(), text) for name, text in facts(profile)]
        about += [("Sensor", text) for text in describe_sensors(profile)]
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
        _origin_of(profiles),
        figures,
        tables,
        made_at,
        title=title,
        facts=about,
        cards=cards,
        notes=_notes(profiles),
        about=where,
    )


def _cards(profile: Profile) -> list[Card]:
    """Headline numbers: power of each state, and the difference between them."""
    cards = []
    shown = {state.unit: state for state in profile.states}
    for state in shown.values():
        inside = state.channels.get(TOTAL)
        if inside is None:
            continue
        names = " = ".join(other.name for other in profile.states if other.unit == state.unit)
        detail = f"{unit_word(profile)} {state.unit}, {quantity(state.time_s, 's')}, {energy_text(state)}"
        cards.append(Card(f"Power, {names}", watts(inside.mean_w, inside.mean_error_w), detail, main=True))
    moved = difference(profile)
    if moved is not None and len(shown) > 1:
        cards.append(Card("From SSE to SSP", change(moved, 1), "change in power, at nearly the same execution time"))
    if profile.counter is not None:
        against = f"profile against the energy counter, over {quantity(profile.counter.seconds, 's', 3)}"
        cards.append(Card("Agreement", change(profile.counter.difference), against))
    return cards


def _notes(profiles: Sequence[Profile]) -> list[str]:
    notes = []
    for profile in profiles:
        name = f"{subject(profile)}: " if len(profiles) > 1 else ""
        if not profile.complete:
            notes.append(f"{name}incomplete: {shortfall(profile)}.")
        notes += [f"{name}{note}" for note in profile.notes]
    return notes


def draw_profiles(profiles: Sequence[Profile], *, relative: bool = False) -> tuple[Figure, ...]:
    """The figures of one profile in full, or those that compare several, in the order they are shown.

    Args:
        profiles: one or more.
        relative: show the power of several as a fraction of the largest, instead of watts.

    Raises:
        BadInputError: there is none.
        MissingExtraError: the ``report`` extra is not installed.
    """
    if not profiles:
        raise BadInputError("no power profile was given; make one with 'wastenot profile --out'")
    if len(profiles) == 1:
        return run_figure(profiles[0]), inside_figure(profiles[0]), method_figure(profiles[0])
    return (
        components_figure(profiles, relative=relative),
        shapes_figure(profiles, relative=relative),
        contexts_figure(profiles),
    )


def write_profile_figures(
    profiles: Sequence[Profile], folder: str | os.PathLike[str], *, relative: bool = False
) -> list[Path]:
    """Write the figures of :func:`draw_profiles`; see :func:`wastenot.reporting.figure.export_figures`."""
    return export_figures(draw_profiles(profiles, relative=relative), _origin_of(profiles), folder)


def _origin_of(profiles: Sequence[Profile]) -> Origin:
    """Where the numbers come from: ``measured`` only if all are."""
    return next((profile.origin for profile in profiles if profile.origin != "measured"), "measured")
