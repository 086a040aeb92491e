"""What power profiles say in ten seconds: how wrong a reading taken too early is, or where kernels differ."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from wastenot.devices.instrument import TOTAL
from wastenot.pages.formatting import change, percent, quantity
from wastenot.pages.panel import Line, Next, Panel, Tone
from wastenot.profiles.page.description import (
    describe_sensors,
    difference,
    energy_text,
    label_of,
    meaning_of,
    shown_before,
    steady,
    subject,
    unit_word,
    watts,
)
from wastenot.profiles.result import Profile, State, UnitPower
from wastenot.workloads.primitives import is_primitive

_COUNTER = "energy counter"
_TIMES = 3.0  # from which on a ratio is told as such, not in per cent
_CLEAR = 3.0  # standard errors from which on a difference counts as there


def story_of(profiles: Sequence[Profile]) -> tuple[Tone, str, str, tuple[Panel, ...]]:
    """How sure the numbers are, the headline, its verdict, and panels."""
    if len(profiles) > 1:
        return _story_of_several(profiles)
    (profile,) = profiles
    verdict, agrees = _checked(profile)
    if not profile.complete:
        verdict = f"incomplete, so use it with care; {verdict}"
    tone: Tone = "promised" if profile.complete and agrees else "undecided"
    early = _first_against_steady(profile)
    if early is None:
        shown = {state.unit: state for state in profile.states}
        raw = _raw_panel(profile)
        second = [_state_panel(profile, state) for state in reversed(shown.values())][1:] if raw is None else [raw]
        panels = [_state_panel(profile, steady(profile)), *second, _basis(profile)]
        return tone, _effect(profile), verdict, tuple(panels)
    warm_s = _warm_up_s(profile)
    effect = f"Warm up {profile.kernel} for {quantity(warm_s, 's', 2)} before reading its power, or its energy comes out "
    effect += f"{percent(abs(early), 1)} too {'low' if early < 0.0 else 'high'}"
    panels = [_state_panel(profile, steady(profile)), _early_panel(profile), _warm_up_panel(profile)]
    return tone, effect, verdict, tuple(panels)


def next_step(profiles: Sequence[Profile], files: Sequence[str] = ()) -> Next:
    """See what running after another kernel does to one; where that is known, look for clocks that save energy.

    Args:
        profiles: those on the page.
        files: they were read from, one for each profile; by default to be filled in.
    """
    # A real card's name in profiles is its label, which no command takes.
    device = profiles[0].device if profiles[0].device.startswith("sim:") else "DEVICE"
    replaced = " (replace DEVICE)" if device == "DEVICE" else ""
    if len(profiles) == 1:
        (profile,) = profiles
        kernel = _argument(profile) or "KERNEL"
        other = "gemm:8192" if kernel.startswith("gemv") else "gemv:8192"
        text, after, out = "See how much its power depends on what ran before it", f" --after {other}x40", "after"
        if profile.before:
            text, after, out = "See how much of it is due to what ran before it", "", "alone"
        return Next(
            f"{text}{replaced}",
            (f"wastenot profile run {kernel}{after} --device {device} --out {out}.parquet",
             f"wastenot profile compare PROFILE.parquet {out}.parquet --page compare.html"),
        )  # fmt: skip
    if _in_context(profiles):
        return Next(
            f"Find the clocks that save energy when kernels run one after another{replaced}",
            (f"wastenot kernel run gpt3-xl --device {device}",),
        )
    names = list(dict.fromkeys(_argument(each) for each in profiles if _argument(each)))
    kernel, before = names[:2] if len(names) > 1 else ("KERNEL", "OTHER")
    text, file = f"See how much the power of {kernel} depends on what ran before it", "PROFILE.parquet"
    places = [place for place, each in enumerate(profiles) if _argument(each) == kernel]
    if files and places:
        file = shlex.quote(files[places[0]])
    else:
        text += f", with its profile in place of {file}"
    return Next(
        f"{text}{replaced}",
        (f"wastenot profile run {kernel} --after {before}x40 --device {device} --out after.parquet",
         f"wastenot profile compare {file} after.parquet --page order.html"),
    )  # fmt: skip


# ---- one profile ---------------------------------------------------------------------------------------------------------


def _effect(profile: Profile) -> str:
    """Power at its steady state, where that is its power from full speed on or follows other kernels."""
    inside = steady(profile).channels.get(TOTAL)
    where = f"right {shown_before(profile)}" if profile.before else "at steady power"
    if inside is None:
        return f"{profile.kernel} takes {quantity(steady(profile).time_s, 's')} {where}"
    if (raw_w := _raw_w(profile)) is not None:
        off = _side(raw_w / inside.mean_w - 1.0)
        return f"Raw readings of {profile.kernel} are {off}: it uses {energy_text(steady(profile))} per {unit_word(profile)}"
    return f"{profile.kernel} uses {energy_text(steady(profile))} per {unit_word(profile)} {where}"


def _first_against_steady(profile: Profile) -> float | None:
    """Energy of SSE over that of SSP, minus 1; ``None`` where they are one execution or power does not differ clearly."""
    if difference(profile) is None or len({each.unit for each in profile.states}) == 1:
        return None
    first, last = profile.states[0], profile.states[-1]
    return first.energy_j / last.energy_j - 1.0 if _is_clear(first.channels[TOTAL], _total(profile)) else None


def _warm_up_s(profile: Profile) -> float:
    """From the begin of a run to that of steady power, in seconds."""
    return float(profile.unit_begin_s[steady(profile).unit - 1])


def _checked(profile: Profile) -> tuple[str, bool]:
    """What the energy counter says of the profile, and whether both agree within the mean's standard errors."""
    counter, inside = profile.counter, steady(profile).channels.get(TOTAL)
    where = "in this context" if profile.before else "at steady power"
    shown = "this profile" if inside is None else f"{watts(inside.mean_w, inside.mean_error_w)} {where}"
    if profile.origin == "simulated":
        return f"{shown}; a simulated profile shows the method, not a GPU", True
    if counter is None:
        return f"{shown}; there was no energy counter to check it against", True
    off, compared = percent(abs(counter.difference)), f"the profile over {quantity(counter.seconds, 's', 3)}"
    compared += f" ({watts(counter.counter_w)} and {watts(counter.profile_w)})"
    if inside is None or abs(counter.difference) <= _CLEAR * inside.mean_error_w / inside.mean_w:
        return f"the {_COUNTER} agrees to {off} with {compared}", True
    return f"the {_COUNTER} differs by {off} from {compared}: trust the profile no closer than that", False


def _state_panel(profile: Profile, state: State) -> Panel:
    names = [other.name for other in profile.states if other.unit == state.unit]
    inside, word = state.channels.get(TOTAL), unit_word(profile)
    title = label_of(names[0])[:1].upper() + label_of(names[0])[1:]
    title = title if len(names) == 1 else f"At full speed and steady power ({' = '.join(names)})"
    text = f"per {word}{{}} in {quantity(state.time_s, 's')}, number {state.unit} of a run."
    drawn = "" if inside is None else f": {watts(inside.mean_w, inside.mean_error_w)}"
    return Panel(title, energy_text(state), text.format(drawn))


def _early_panel(profile: Profile) -> Panel:
    """What the first execution at full speed misses."""
    first, last = profile.states[0], steady(profile)
    inside = first.channels[TOTAL]
    missed_j = last.energy_j - first.energy_j
    text = f"by {unit_word(profile)} {first.unit}, the first at full speed (SSE): {energy_text(first)} at "
    text += f"{watts(inside.mean_w, inside.mean_error_w)}, {_side(first.energy_j / last.energy_j - 1.0)}."
    value = f"{quantity(abs(missed_j), 'J', 3)} {'missed' if missed_j > 0.0 else 'too much'}"
    return Panel("If read too early", value, text)


def _raw_w(profile: Profile) -> float | None:
    """Mean of the readings during a run, where each averages over more than an execution; else ``None``."""
    index = next((place for place, each in enumerate(profile.channels) if each.channel.name == TOTAL), None)
    if index is None or profile.channels[index].channel.span_s <= steady(profile).time_s:
        return None
    logged = profile.logged
    during = logged.power_w[(logged.channel == index) & (logged.golden == 1) & (logged.unit > 0)]
    if not len(during) or abs(during.mean() - _total(profile).mean_w) <= _CLEAR * _total(profile).mean_error_w:
        return None
    return float(during.mean())


def _raw_panel(profile: Profile) -> Panel | None:
    """How wrong the readings themselves are, where the sensor is slower than the kernel."""
    raw_w = _raw_w(profile)
    if raw_w is None:
        return None
    state = steady(profile)
    off_j = abs(raw_w - _total(profile).mean_w) * state.time_s
    text = f"per {unit_word(profile)} by the mean reading during a run, {watts(raw_w)}: a reading covers "
    text += f"{quantity(profile.channels[0].channel.span_s, 's', 3)}, idle time included."
    side = "missed" if raw_w < _total(profile).mean_w else "too much"
    return Panel("If read without correction", f"{quantity(off_j, 'J', 3)} {side}", text)


def _side(off: float) -> str:
    return f"{percent(abs(off), 1)} too {'low' if off < 0.0 else 'high'}"


def _warm_up_panel(profile: Profile) -> Panel:
    before = steady(profile).unit - 1
    text = f"{before:,} executions" if profile.group == 1 else f"{before * profile.group:,} executions"
    text += f" one after another; from then on power is steady{_how_steady(profile)}."
    return Panel("Warm up for", quantity(_warm_up_s(profile), "s", 2), text, lines=_sensor_lines(profile))


def _basis(profile: Profile) -> Panel:
    text = f"of which {profile.golden_runs:,}, whose execution times agree, are used."
    return Panel("Basis", f"{profile.runs:,} runs", text, lines=_sensor_lines(profile))


def _how_steady(profile: Profile) -> str:
    """By how much all later executions differ from the first at steady power."""
    later_w = next(each.steady_w for each in profile.channels if each.channel.name == TOTAL)
    off = later_w / _total(profile).mean_w - 1.0
    return f": all later ones draw {watts(later_w)} ({change(off, 1)})" if math.isfinite(later_w) else ""


def _sensor_lines(profile: Profile) -> tuple[Line, ...]:
    return tuple(Line("Sensor", what) for what in describe_sensors(profile))


# ---- several profiles ----------------------------------------------------------------------------------------------------


def _story_of_several(profiles: Sequence[Profile]) -> tuple[Tone, str, str, tuple[Panel, ...]]:
    tone: Tone = "promised" if all(profile.complete for profile in profiles) else "undecided"
    powered = sorted((each for each in profiles if TOTAL in steady(each).channels), key=lambda each: _total(each).mean_w)
    if len(powered) < 2:
        return tone, f"{len(profiles)} power profiles side by side", "too few have a total power to compare", ()
    low, high = powered[0], powered[-1]
    panels = [_difference_panel(high, low), _energy_panel(high, low)]
    context = max(_in_context(powered), key=lambda pair: abs(_shift(*pair)), default=None)
    if context is not None:
        return tone, *_context_story(*context), (_context_panel(*context), *panels)
    early = [each for each in powered if _first_against_steady(each) is not None]
    panels += [_misread_panel(early)] if early else []
    return tone, _difference_effect(high, low, len(powered)), _difference_verdict(high, low, len(powered)), tuple(panels)


def _difference_verdict(high: Profile, low: Profile, count: int) -> str:
    """How sure the difference in power is, and what of their power goes to the component that differs most."""
    by_w = abs(_total(high).mean_w - _total(low).mean_w)
    error_w = math.hypot(_total(high).mean_error_w, _total(low).mean_error_w)
    clear = _is_clear(_total(high), _total(low))
    sure = f"{watts(by_w, error_w)} apart, {'well beyond' if clear else 'within'} the errors"
    parts = _parts(high, low)
    if not parts or not clear or count > 2:
        return sure
    name = max(parts, key=lambda each: abs(parts[each]))
    first, second = (steady(each).channels[name].mean_w / _total(each).mean_w for each in (high, low))
    shares = f"{percent(first, 0)} of {subject(high)}'s power goes to {meaning_of(name)}"
    return f"{shares}, {percent(second, 0)} of {subject(low)}'s; {sure}"


def _difference_effect(high: Profile, low: Profile, count: int) -> str:
    """By how much the power of the highest exceeds that of the lowest, and in which components."""
    several = high.device != low.device
    names = [f"{subject(each)} on {each.device}" if several else subject(each) for each in (high, low)]
    if not _is_clear(_total(high), _total(low)):
        effect = f"{names[0]} and {names[1]} draw the same power within the errors"
    else:
        effect = f"{names[0]} draws {percent(_total(high).mean_w / _total(low).mean_w - 1.0, 1)} more power than {names[1]}"
    if count > 2:
        return f"{effect}, the highest and the lowest of {count}"
    parts = _parts(high, low)
    ends = [max(parts, key=lambda each: parts[each]), min(parts, key=lambda each: parts[each])] if parts else []
    told = [
        f"{'more' if parts[name] > 0.0 else 'less'} in {meaning_of(name)}"
        for name, side in zip(ends, (1.0, -1.0), strict=False)
        if side * parts[name] > 0.0
    ]
    return f"{effect}: {', '.join(told)}" if told and _is_clear(_total(high), _total(low)) else effect


def _parts(high: Profile, low: Profile) -> dict[str, float]:
    """By how much the mean power of each component differs between two profiles, in watts."""
    mine, others = steady(high).channels, steady(low).channels
    return {name: mine[name].mean_w - others[name].mean_w for name in mine if name in others and name != TOTAL}


def _difference_panel(high: Profile, low: Profile) -> Panel:
    by_w = _total(high).mean_w - _total(low).mean_w
    error_w = math.hypot(_total(high).mean_error_w, _total(low).mean_error_w)
    lines = [
        Line(name if meaning_of(name) == name else f"{name} ({meaning_of(name)})", watts(part_w, sign=True))
        for name, part_w in _parts(high, low).items()
    ]
    where = "right after other kernels" if high.before and low.before else "alone, at steady power"
    text = f"{_draws(high)}, {_draws(low)}, each {where}."
    return Panel("Difference in power", watts(by_w, error_w), text, lines=tuple(lines))


def _draws(profile: Profile) -> str:
    return f"{subject(profile)} draws {watts(_total(profile).mean_w, _total(profile).mean_error_w)}"


def _energy_panel(high: Profile, low: Profile) -> Panel:
    """Energy of an execution of either, and by how much it differs."""
    less, more = sorted((low, high), key=lambda each: steady(each).energy_j / each.group)
    ratio = steady(more).energy_j / more.group / (steady(less).energy_j / less.group)
    value = f"{ratio:.0f} times as much" if ratio >= _TIMES else f"{percent(ratio - 1.0, 1)} more"
    text = f"for {subject(more)} {'as' if ratio >= _TIMES else 'than'} for {subject(less)}."
    units = ["" if each.group == 1 else f" per {unit_word(each)}" for each in (more, less)]
    costs = [f"{energy_text(steady(each))} in {quantity(steady(each).time_s, 's')}" for each in (more, less)]
    lines = [Line(subject(each), cost + unit) for each, cost, unit in zip((more, less), costs, units, strict=True)]
    return Panel("Energy per execution", value, text, lines=tuple(lines))


def _misread_panel(early: Sequence[Profile]) -> Panel:
    """How wrong the first execution at full speed reads, the worst kernel first."""
    ordered = sorted(early, key=lambda each: -abs(_first_against_steady(each) or 0.0))
    worst = ordered[0]
    off = _first_against_steady(worst) or 0.0
    text = f"{subject(worst)} at its first full speed: {quantity(abs(off) * steady(worst).energy_j, 'J', 3)} "
    text += f"{'missed' if off < 0.0 else 'too much'}. It needs {quantity(_warm_up_s(worst), 's', 2)} of warm-up."
    lines = [
        Line(subject(each), f"{_side(_first_against_steady(each) or 0.0)}, {quantity(_warm_up_s(each), 's', 2)} of warm-up")
        for each in ordered[1:3]
    ]
    return Panel("If read too early", _side(off), text, lines=tuple(lines))


def _in_context(profiles: Sequence[Profile]) -> list[tuple[Profile, Profile]]:
    """Each profile after other kernels with the one of the same kernel alone."""
    alone = {(each.kernel, each.device): each for each in profiles if not each.before and TOTAL in steady(each).channels}
    return [
        (alone[each.kernel, each.device], each)
        for each in profiles
        if each.before and TOTAL in steady(each).channels and (each.kernel, each.device) in alone
    ]


def _shift(alone: Profile, after: Profile) -> float:
    """Power after other kernels over that alone, minus 1."""
    return _total(after).mean_w / _total(alone).mean_w - 1.0


def _context_story(alone: Profile, after: Profile) -> tuple[str, str]:
    """What running after other kernels does to a kernel's power, as headline and verdict."""
    shift = _shift(alone, after)
    verdict = f"per {unit_word(after)}, energy changes by {change(steady(after).energy_j / steady(alone).energy_j - 1.0, 1)}"
    if not _is_clear(_total(alone), _total(after)):
        return f"{alone.kernel} draws the same power {shown_before(after)} as alone, within the errors", verdict
    side = "more" if shift > 0.0 else "less"
    effect = f"{alone.kernel} draws {percent(abs(shift), 1)} {side} power {shown_before(after)} than alone"
    return effect, f"{verdict}: profile kernels in the order they run in"


def _context_panel(alone: Profile, after: Profile) -> Panel:
    text = f"{_draws(after)}, alone {watts(_total(alone).mean_w, _total(alone).mean_error_w)}."
    energies = f"{energy_text(steady(after))}, alone {energy_text(steady(alone))}"
    return Panel(
        "What ran before changes", f"{change(_shift(alone, after), 1)} power", text, lines=(Line("Energy", energies),)
    )


# ---- both ----------------------------------------------------------------------------------------------------------------


def _total(profile: Profile) -> UnitPower:
    return steady(profile).channels[TOTAL]


def _is_clear(first: UnitPower, last: UnitPower) -> bool:
    """Whether two mean powers differ by more than their errors."""
    return abs(first.mean_w - last.mean_w) > _CLEAR * math.hypot(first.mean_error_w, last.mean_error_w)


def _argument(profile: Profile) -> str:
    """What a single kernel is called on the command line; empty for a kernel of a workload."""
    name = profile.kernel.replace("-", ":", 1)
    return name if is_primitive(name) else ""
