"""The report of power profiles, one in full or several side by side: what they say in ten seconds, page, figures."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.core.errors import BadInputError
from wastenot.core.origin import Origin
from wastenot.devices.instrument import TOTAL
from wastenot.pages.figure import Figure
from wastenot.pages.formatting import change, percent, quantity
from wastenot.pages.page import Page
from wastenot.pages.panel import Line, Panel, Tone
from wastenot.profiles.page.comparison_figures import components_figure, contexts_figure, shapes_figure
from wastenot.profiles.page.description import (
    describe_sensors,
    difference,
    energy_text,
    facts,
    profiles_table,
    shortfall,
    state_table,
    steady,
    subject,
    subtitle,
    unit_word,
    watts,
)
from wastenot.profiles.page.inside_figure import inside_figure
from wastenot.profiles.page.method_figure import method_figure
from wastenot.profiles.page.run_figure import run_figure
from wastenot.profiles.result import Profile, State

_COUNTER = "energy counter"


def story_of(profiles: Sequence[Profile]) -> tuple[Tone, str, str, tuple[Panel, ...]]:
    """How sure the numbers are, the headline, its verdict, and panels."""
    if len(profiles) > 1:
        return _story_of_several(profiles)
    (profile,) = profiles
    inside = steady(profile).channels.get(TOTAL)
    where = f"right {subject(profile).removeprefix(profile.kernel).strip()}" if profile.before else "at steady power"
    effect = f"{profile.kernel} takes {quantity(steady(profile).time_s, 's')} {where}"
    if inside is not None:
        effect = f"{profile.kernel} draws {watts(inside.mean_w, inside.mean_error_w)} {where}"
    verdict = "there was no energy counter to check it against"
    if profile.counter is not None:
        verdict = f"the {_COUNTER} agrees to {percent(abs(profile.counter.difference))}"
    if not profile.complete:
        verdict = f"incomplete, so use it with care; {verdict}"
    shown = {state.unit: state for state in profile.states}
    panels = [_state_panel(profile, state) for state in reversed(shown.values())]
    return "promised" if profile.complete else "undecided", effect, verdict, (*panels, _basis(profile))


def _story_of_several(profiles: Sequence[Profile]) -> tuple[Tone, str, str, tuple[Panel, ...]]:
    complete = all(profile.complete for profile in profiles)
    powers = [(steady(profile).channels[TOTAL].mean_w, profile) for profile in profiles if TOTAL in steady(profile).channels]
    effect = f"{len(profiles)} power profiles side by side"
    if len(powers) > 1:
        (low_w, low), (high_w, high) = min(powers, key=lambda pair: pair[0]), max(powers, key=lambda pair: pair[0])
        effect = f"From {low_w:.0f} W ({subject(low)}) to {high_w:.0f} W ({subject(high)})"
    verdict = f"mean power of an execution at steady power, or after others, of {len(profiles)} profiles"
    return "promised" if complete else "undecided", effect, verdict, ()


def _state_panel(profile: Profile, state: State) -> Panel:
    names = [other.name for other in profile.states if other.unit == state.unit]
    inside, word = state.channels.get(TOTAL), unit_word(profile)
    title = {"SSP": "At steady power (SSP)", "SSE": "First at full speed (SSE)"}.get(names[0], names[0].capitalize())
    title = title if len(names) == 1 else f"At full speed and steady power ({' = '.join(names)})"
    lines = []
    last = state is profile.states[-1]
    if inside is not None and not last:
        lines.append(Line("Power", watts(inside.mean_w, inside.mean_error_w)))
    moved = difference(profile)
    if last and moved is not None and len({each.unit for each in profile.states}) > 1:
        lines.append(Line("Power relative to SSE", change(moved, 1)))
    article = "an" if profile.group == 1 else "a"
    text = f"{article} {word}, {quantity(state.time_s, 's')} long: number {state.unit} of a run."
    return Panel(title, energy_text(state), text, lines=tuple(lines))


def _basis(profile: Profile) -> Panel:
    counter = profile.counter
    text = f"of which {profile.golden_runs:,} have nearly the same execution time."
    lines = [Line(name.capitalize(), what) for name, what in facts(profile) if name == "timestamps"]
    if counter is not None:
        lines.append(Line(_COUNTER.capitalize(), f"{watts(counter.counter_w)} over {quantity(counter.seconds, 's', 3)}"))
    lines += [Line("Sensor", what) for what in describe_sensors(profile)]
    return Panel("Basis", f"{profile.runs:,} runs", text, lines=tuple(lines))


def one_profile_page(profile: Profile) -> Page:
    """The page of one power profile, shown in full; errors are those of :func:`profile_page`."""
    return profile_page([profile])


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
