"""The report of power profiles, one in full or several side by side: what they say in ten seconds, page, figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wastenot.core.errors import BadInputError
from wastenot.core.origin import Origin
from wastenot.devices.instrument import TOTAL
from wastenot.pages.figure import Figure
from wastenot.pages.formatting import change, percent, quantity
from wastenot.pages.page import Folded, Page
from wastenot.pages.panel import Line, Next, Panel, Tone
from wastenot.profiles.page.comparison_figures import CONTEXTS, components_figure, contexts_figure, shapes_figure
from wastenot.profiles.page.description import (
    describe_sensors,
    difference,
    energy_text,
    facts,
    label_of,
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
from wastenot.profiles.page.method_figure import METHOD, method_figure
from wastenot.profiles.page.run_figure import run_figure
from wastenot.profiles.result import Profile, State, UnitPower
from wastenot.workloads.primitives import is_primitive

_COUNTER = "energy counter"
_CLEAR = 3.0  # standard errors from which on a difference counts as there


def story_of(profiles: Sequence[Profile]) -> tuple[Tone, str, str, tuple[Panel, ...]]:
    """How sure the numbers are, the headline, its verdict, and panels."""
    if len(profiles) > 1:
        return _story_of_several(profiles)
    (profile,) = profiles
    verdict, agrees = _checked(profile)
    if not profile.complete:
        verdict = f"incomplete, so use it with care; {verdict}"
    shown = {state.unit: state for state in profile.states}
    panels = [_state_panel(profile, state) for state in reversed(shown.values())]
    tone: Tone = "promised" if profile.complete and agrees else "undecided"
    return tone, _effect(profile), verdict, (*panels, _basis(profile))


def _effect(profile: Profile) -> str:
    """Power at its steady state, and how far off the first execution at full speed is."""
    inside = steady(profile).channels.get(TOTAL)
    where = f"right {subject(profile).removeprefix(profile.kernel).strip()}" if profile.before else "at steady power"
    if inside is None:
        return f"{profile.kernel} takes {quantity(steady(profile).time_s, 's')} {where}"
    effect = f"{profile.kernel} draws {watts(inside.mean_w, inside.mean_error_w)} {where}"
    off = _first_against_steady(profile)
    if off is None:
        return effect
    side = "low" if off < 0.0 else "high"
    return f"{effect}; its first {unit_word(profile)} at full speed would read {percent(abs(off), 1)} too {side}"


def _first_against_steady(profile: Profile) -> float | None:
    """Total power of SSE over that of SSP, minus 1; ``None`` where they are one execution or do not differ clearly."""
    moved = difference(profile)
    if moved is None or len({each.unit for each in profile.states}) == 1:
        return None
    return 1.0 / (1.0 + moved) - 1.0 if _is_clear(profile.states[0].channels[TOTAL], _total(profile)) else None


def _checked(profile: Profile) -> tuple[str, bool]:
    """What the energy counter says of the mean, and whether both agree within its standard errors."""
    counter, inside = profile.counter, steady(profile).channels.get(TOTAL)
    if counter is None:
        return "there was no energy counter to check it against", True
    off, over = percent(abs(counter.difference)), "over a run kept back for this check"
    both = "; both are simulated, so this checks the method only" if profile.origin == "simulated" else ""
    if inside is None or abs(counter.difference) <= _CLEAR * inside.mean_error_w / inside.mean_w:
        return f"the {_COUNTER} agrees to {off} {over}{both}", True
    return f"the {_COUNTER} differs by {off} {over}: ± is the standard error of the mean only{both}", False


def _story_of_several(profiles: Sequence[Profile]) -> tuple[Tone, str, str, tuple[Panel, ...]]:
    complete = all(profile.complete for profile in profiles)
    powered = sorted((each for each in profiles if TOTAL in steady(each).channels), key=lambda each: _total(each).mean_w)
    effect, panels = f"{len(profiles)} power profiles side by side", []
    if len(powered) > 1:
        low, high = powered[0], powered[-1]
        several = len({each.device for each in powered}) > 1
        names = [f"{subject(each)} on {each.device}" if several else subject(each) for each in (high, low)]
        more = percent(_total(high).mean_w / _total(low).mean_w - 1.0, 1)
        effect = f"{names[0]} draws {more} more power than {names[1]}"
        if unit_word(high) == unit_word(low):
            effect += f" and uses {energy_text(steady(high))} per {unit_word(high)}, not {energy_text(steady(low))}"
        if not _is_clear(_total(high), _total(low)):
            effect = f"{names[0]} and {names[1]} draw the same power within the errors"
        effect += f", the highest and the lowest of {len(powered)}" if len(powered) > 2 else ""
        panels = [_power_panel("Highest power", high), _power_panel("Lowest power", low)]
    if panels and (moved := [each for each in powered if _first_against_steady(each) is not None]):
        most = max(moved, key=lambda each: abs(difference(each) or 0.0))
        off = _first_against_steady(most) or 0.0
        text = f"is what the first execution of {subject(most)} at full speed reads, compared with its steady power."
        panels.append(Panel("A short benchmark misleads", f"{percent(abs(off), 1)} {'low' if off < 0 else 'high'}", text))
    verdict = "by mean power of an execution at steady power"
    if any(profile.before for profile in profiles):
        verdict += ", or right after other kernels"
    return "promised" if complete else "undecided", effect, verdict, tuple(panels)


def _total(profile: Profile) -> UnitPower:
    return steady(profile).channels[TOTAL]


def _is_clear(first: UnitPower, last: UnitPower) -> bool:
    """Whether two mean powers differ by more than their errors."""
    return abs(first.mean_w - last.mean_w) > _CLEAR * math.hypot(first.mean_error_w, last.mean_error_w)


def _power_panel(title: str, profile: Profile) -> Panel:
    state, total = steady(profile), _total(profile)
    text = f"{subject(profile)}: {quantity(state.time_s, 's')} and {energy_text(state)} per {unit_word(profile)}."
    return Panel(title, watts(total.mean_w, total.mean_error_w), text)


def next_step(profiles: Sequence[Profile]) -> Next:
    """Compare one profile with that of another kernel; of several, see what runs before a kernel does to it."""
    # A real card's name in profiles is its label, which no command takes.
    device = profiles[0].device if profiles[0].device.startswith("sim:") else "DEVICE"
    replaced = " (replace DEVICE)" if device == "DEVICE" else ""
    if len(profiles) == 1:
        other = "gemm:8192" if profiles[0].kernel.startswith("gemv") else "gemv:8192"
        return Next(
            f"Compare it with another kernel{replaced}",
            (f"wastenot profile run {other} --device {device} --out other.parquet",
             "wastenot profile compare PROFILE.parquet other.parquet --page compare.html"),
        )  # fmt: skip
    names = list(dict.fromkeys(_argument(each) for each in profiles if _argument(each)))
    kernel, before = names[:2] if len(names) > 1 else ("KERNEL", "OTHER")
    command = f"wastenot profile run {kernel} --after {before}x40 --device {device} --out after.parquet --page after.html"
    return Next(f"See how much a kernel's power depends on what ran before it{replaced}", (command,))


def _argument(profile: Profile) -> str:
    """What a single kernel is called on the command line; empty for a kernel of a workload."""
    name = profile.kernel.replace("-", ":", 1)
    return name if is_primitive(name) else ""


def _state_panel(profile: Profile, state: State) -> Panel:
    names = [other.name for other in profile.states if other.unit == state.unit]
    inside, word = state.channels.get(TOTAL), unit_word(profile)
    title = label_of(names[0])[:1].upper() + label_of(names[0])[1:]
    title = title if len(names) == 1 else f"At full speed and steady power ({' = '.join(names)})"
    text = f"{quantity(state.time_s, 's')} per {word}, number {state.unit} of a run."
    if inside is None:
        return Panel(title, energy_text(state), text)
    off = _first_against_steady(profile)
    lines = [Line("Relative to steady power", change(off, 1))] if off is not None and state is profile.states[0] else []
    text = f"{energy_text(state)} and {text}"
    return Panel(title, watts(inside.mean_w, inside.mean_error_w), text, lines=tuple(lines))


def _basis(profile: Profile) -> Panel:
    counter = profile.counter
    text = f"of which {profile.golden_runs:,}, whose execution times agree, are used (golden runs)."
    lines = []
    if counter is not None:
        text_of_check = (
            f"{watts(counter.counter_w)} over the {quantity(counter.seconds, 's', 3)} of another run, where the profile "
            f"gives {watts(counter.profile_w)}"
        )
        lines.append(Line(_COUNTER.capitalize(), text_of_check))
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
        made_from += [(name.capitalize(), what) for name, what in facts(profile) if name == "timestamps"]
        title, where = (subject(profile), f"on {profile.device}"), subtitle(profile)
        table = "states", state_table(profile)
    else:
        title = f"{len(profiles)} power profiles", "side by side"
        where = figures[0].subtitle
        made_from = [("Devices", ", ".join(dict.fromkeys(profile.device for profile in profiles)))]
        table = "profiles", profiles_table(profiles, relative=relative)
    tone, effect, verdict, panels = story_of(profiles)
    shown = [figure for figure in figures if figure.specification is not None or figure.name not in (CONTEXTS, METHOD)]
    method = [figure for figure in shown if figure.name == METHOD]
    return Page(
        verb="power profile",
        brand="power profile",
        title=title,
        origin=_origin_of(profiles),
        effect=effect,
        verdict=verdict,
        panels=panels,
        next_step=next_step(profiles),
        figures=[figure for figure in shown if figure.name != METHOD],
        tables=[table],
        folded=Folded("How the method matters", "what each of its steps changes", method) if method else None,
        device=profiles[0].device if len({each.device for each in profiles}) == 1 else "",
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
