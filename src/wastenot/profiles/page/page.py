"""The report of power profiles, one in full or several side by side: page and figures."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.core.errors import BadInputError
from wastenot.pages.figure import Figure
from wastenot.pages.page import Folded, Page
from wastenot.profiles.page.comparison_figures import CONTEXTS, SHAPES, components_figure, contexts_figure, shapes_figure
from wastenot.profiles.page.description import facts, profiles_table, shortfall, state_table, subject, subtitle
from wastenot.profiles.page.inside_figure import inside_figure
from wastenot.profiles.page.method_figure import METHOD, method_figure
from wastenot.profiles.page.run_figure import run_figure
from wastenot.profiles.page.story import next_step, story_of
from wastenot.profiles.result import Profile


def one_profile_page(profile: Profile) -> Page:
    """The page of one power profile, shown in full; errors are those of :func:`profile_page`."""
    return profile_page([profile])


def profile_page(profiles: Sequence[Profile], *, relative: bool = False, files: Sequence[str] = ()) -> Page:
    """The page of power profiles.

    Args:
        profiles: one, shown in full, or several, shown side by side.
        files: that several were read from, one for each, to name in commands.
        relative: show the power of several as a fraction of the largest, instead of watts.

    Raises:
        BadInputError: there is no profile.
        MissingExtraError: the ``report`` extra is not installed.
    """
    figures = draw_profiles(profiles, relative=relative)
    if len(profiles) == 1:
        profile = profiles[0]
        made_from = [("Device", f"{profile.device}: {profile.model}"), ("Driver", profile.driver)]
        made_from += [(name.capitalize(), what) for name, what in facts(profile) if name in ("timestamps", "energy counter")]
        title, where = (subject(profile), f"on {profile.device}"), subtitle(profile)
        table = "states", state_table(profile)
    else:
        title = f"{len(profiles)} power profiles", "compared"
        where = figures[0].subtitle
        made_from = [("Devices", ", ".join(dict.fromkeys(profile.device for profile in profiles)))]
        table = "profiles", profiles_table(profiles, relative=relative)
    tone, effect, verdict, panels = story_of(profiles)
    # What order changes is the headline where it is known, so the figure that shows it comes first.
    drawn = [figure for figure in figures if figure.specification is not None]
    shown = sorted(drawn, key=lambda figure: figure.name != CONTEXTS)
    method = [figure for figure in shown if figure.name == METHOD]
    folded = Folded(
        "All values, and the method", "both states, and what each step of FinGraV's method changes", method, [table]
    )
    if len(profiles) > 1:  # whose figures say what the table does
        method = [figure for figure in shown if figure.name == SHAPES]
        folded = Folded("Inside an execution, and all values", "power, time and energy of an execution", method, [table])
    missing = [figure.note for figure in figures if figure not in shown and figure.name not in (CONTEXTS, METHOD)]
    return Page(
        verb="power profile",
        brand="power profile" if len(profiles) == 1 else "power profiles",
        title=title,
        origin=next((profile.origin for profile in profiles if profile.origin != "measured"), "measured"),
        effect=effect,
        verdict=verdict,
        panels=panels,
        next_step=next_step(profiles, files),
        figures=[figure for figure in shown if figure not in folded.figures],
        tables=[],
        folded=folded,
        device=profiles[0].device if len({each.device for each in profiles}) == 1 else "",
        tone=tone,
        notes=[*_notes(profiles), *dict.fromkeys(missing)],
        about=where,
        made_from=made_from,
    )


def _notes(profiles: Sequence[Profile]) -> list[str]:
    notes = []
    for profile in profiles:
        name = f"{subject(profile)}: " if len(profiles) > 1 else ""
        if not profile.complete:
            notes.append(f"{name}incomplete: {shortfall(profile)}.")
        notes += [f"{name}{note}" if name else f"{note[:1].upper()}{note[1:]}." for note in profile.notes]
    return notes


def draw_profiles(profiles: Sequence[Profile], *, relative: bool = False) -> tuple[Figure, ...]:
    """The figures of one profile in full, or those that compare several; arguments and errors as of :func:`profile_page`."""
    if not profiles:
        raise BadInputError("no power profile was given; make one with 'wastenot profile run --out'")
    if len(profiles) == 1:
        return run_figure(profiles[0]), inside_figure(profiles[0]), method_figure(profiles[0])
    return (
        components_figure(profiles, relative=relative),
        shapes_figure(profiles, relative=relative),
        contexts_figure(profiles),
    )
