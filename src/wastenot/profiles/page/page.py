"""The report of power profiles: one in full, or several side by side, as an HTML page and as figure files."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.core.errors import BadInputError
from wastenot.core.origin import Origin
from wastenot.pages.figure import Figure
from wastenot.pages.page import Page
from wastenot.profiles.page.comparison_figures import components_figure, contexts_figure, shapes_figure
from wastenot.profiles.page.description import (
    profiles_table,
    shortfall,
    state_table,
    subject,
    subtitle,
)
from wastenot.profiles.page.inside_figure import inside_figure
from wastenot.profiles.page.method_figure import method_figure
from wastenot.profiles.page.run_figure import run_figure
from wastenot.profiles.page.story import story_of
from wastenot.profiles.result import Profile


def profile_page(profiles: Sequence[Profile], *, relative: bool = False) -> Page:
    """The page of power profiles.

    Args:
        profiles: one, shown in full, or several, shown side by side.
        relative: show the power of several as a fraction of the largest, instead of watts.

    Raises:
        BadInputError: there is no profile.
        MissingExtraError: the ``report`` extra is not installed.
    """
    figures = draw_profiles(profiles, relative=relative)
    if len(profiles) == 1:
        profile = profiles[0]
        made_from = [("Device", f"{profile.device}: {profile.model}"), ("Driver", profile.driver)]
        title, where = (subject(profile), f"on {profile.device}"), subtitle(profile)
        table = "states", state_table(profile)
    else:
        title = f"{len(profiles)} power profiles", "side by side"
        where = " · ".join(dict.fromkeys(f"{profile.device}, {profile.origin} numbers" for profile in profiles))
        made_from = [("Devices", ", ".join(dict.fromkeys(profile.device for profile in profiles)))]
        table = "profiles", profiles_table(profiles, relative=relative)
    tone, effect, verdict, panels = story_of(profiles)
    return Page(
        verb="power profile",
        brand="power profile",
        title=title,
        origin=_origin_of(profiles),
        effect=effect,
        verdict=verdict,
        panels=panels,
        figures=figures,
        tables=[table],
        tone=tone,
        notes=_notes(profiles),
        about=where,
        made_from=made_from,
    )


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
        raise BadInputError("no power profile was given; make one with 'wastenot profile run --out'")
    if len(profiles) == 1:
        return run_figure(profiles[0]), inside_figure(profiles[0]), method_figure(profiles[0])
    return (
        components_figure(profiles, relative=relative),
        shapes_figure(profiles, relative=relative),
        contexts_figure(profiles),
    )


def _origin_of(profiles: Sequence[Profile]) -> Origin:
    """Where the numbers come from: ``measured`` only if all are."""
    return next((profile.origin for profile in profiles if profile.origin != "measured"), "measured")
