"""A power profile as text and tables, for a terminal and a page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wastenot.core.wording import counted
from wastenot.devices.instrument import TOTAL
from wastenot.pages.formatting import MINUS, SPACE, change, number, percent, quantity
from wastenot.pages.table import Column, Row, Table, Value
from wastenot.profiles.result import Profile, State, UnitPower

ABSENT = "–"
_MEANINGS = {"XCD": "compute dies", "IOD": "dies for input, output and cache", "HBM": "memory"}


def watts(power_w: float, error_w: float | None = None, *, sign: bool = False) -> str:
    """Power with its standard error, to the digits that the error justifies: ``707.3 ± 0.4 W``; or with its sign."""
    if not math.isfinite(power_w):
        return ABSENT
    if sign:
        return f"{power_w:+,.1f}{SPACE}W".replace("-", MINUS)
    return f"{power_w:,.1f}{SPACE}W" if error_w is None else f"{_plus_minus(power_w, error_w)}{SPACE}W"


def _plus_minus(value: float, error: float) -> str:
    digits = 1 if error < 5.0 else 0
    return f"{value:,.{digits}f}{SPACE}±{SPACE}{error:,.{digits}f}"


def subject(profile: Profile) -> str:
    """What was profiled: ``gemm-2048 after 40 × gemv-4096``."""
    return f"{profile.kernel} {shown_before(profile)}".rstrip()


def shown_before(profile: Profile) -> str:
    """What ran before the kernel: ``after 40 × gemv-4096``, or nothing."""
    how = "alternating with" if profile.alternating else "after"
    return f"{how} {profile.before}" if profile.before else ""


def shortfall(profile: Profile) -> str:
    """Why a profile is incomplete, and what it is made from."""
    return "based on the readings collected so far" + (f"; stopped early: {profile.stopped}" if profile.stopped else "")


def unit_word(profile: Profile) -> str:
    """``execution``, or ``group of 5 executions`` if a single one is too short."""
    return "execution" if profile.group == 1 else f"group of {profile.group} executions"


def subtitle(profile: Profile) -> str:
    """Where a figure's numbers come from: kernel, device, runs, measured or simulated."""
    return f"{subject(profile)} on {profile.device} · {_describe_runs(profile)} · {profile.origin} numbers"


def _describe_runs(profile: Profile) -> str:
    """How many runs, and how many of them are used."""
    which = f"used (execution times within {percent(profile.margin, 0)})"
    if profile.bin_rank:
        which = f"in outlier bin {profile.bin_rank} ({percent(profile.margin, 0)} wide)"
    return f"{counted(profile.runs, 'run')}, {profile.golden_runs:,} {which}"


def meanings(names: Sequence[str]) -> str:
    """What channels with a short name measure, a sentence; nothing where their names say it."""
    known = [f"{name}: {_MEANINGS[name]}" for name in names if name in _MEANINGS]
    return f"{'; '.join(known)}. " if known else ""


def named(name: str) -> str:
    """A channel with what it measures, where its name does not say it: ``XCD (compute dies)``."""
    return f"{name} ({_MEANINGS[name]})" if name in _MEANINGS else name


def meaning_of(name: str) -> str:
    """What a channel measures, by its own name where that says it."""
    return _MEANINGS.get(name, name)


def channel_names(profile: Profile) -> tuple[str, ...]:
    """Names of all channels, total first."""
    return tuple(each.channel.name for each in profile.channels)


def timed_channels(profile: Profile) -> tuple[str, ...]:
    """Channels that can be drawn over time; the others average over too long and give levels only."""
    return tuple(each.channel.name for each in profile.channels if len(each.mean_w))


def steady(profile: Profile) -> State:
    """The state in which kernels are compared: SSP, or the one in context."""
    return profile.states[-1]


def difference(profile: Profile) -> float | None:
    """Total power of SSP over that of SSE, minus 1; ``None`` in context."""
    if len(profile.states) < 2:
        return None
    first, last = (state.channels.get(TOTAL) for state in (profile.states[0], profile.states[-1]))
    return None if first is None or last is None else last.mean_w / first.mean_w - 1.0


def state_words(state: str) -> str:
    """A state in words."""
    return {"SSP": "at steady power", "SSE": "first at full speed"}.get(state, state)


def label_of(state: str) -> str:
    """A state in words, with its short name."""
    return f"{state_words(state)} ({state})" if state in ("SSE", "SSP") else state


def energy_text(state: State) -> str:
    """Energy of one unit (an execution, or a group of them) in a state."""
    return quantity(state.energy_j, "J") if TOTAL in state.channels else ABSENT


def state_table(profile: Profile) -> Table:
    """A column for each state, and how far the first is from the last."""
    states = profile.states
    compared = len(states) > 1
    columns = [Column(""), *(Column(label_of(state.name), numeric=True) for state in states)]
    columns += [Column("first, relative to steady", numeric=True)] if compared else []
    rows = [
        _row(f"{unit_word(profile)} of the run, number", [f"{state.unit:,}" for state in states], compared),
        _row("time", [quantity(state.time_s, "s") for state in states], compared, _change([s.time_s for s in states])),
    ]
    if profile.unit_counted_mhz is not None:
        clocks_mhz = [float(profile.unit_counted_mhz[state.unit - 1]) for state in states]
        shown = [f"{clock:,.0f}{SPACE}MHz" for clock in clocks_mhz]
        rows.append(_row("core clock (cycles counted)", shown, compared, _change(clocks_mhz)))
    for name in channel_names(profile):
        insides = [state.channels.get(name) for state in states]
        texts = [ABSENT if one is None else watts(one.mean_w, one.mean_error_w) for one in insides]
        label = f"power, {name}" + ("" if name in timed_channels(profile) else " (level)")
        rows.append(_row(label, texts, compared, _change([one.mean_w for one in insides if one is not None])))
    energies = [state.energy_j for state in states if TOTAL in state.channels]
    rows.append(_row("energy", [energy_text(state) for state in states], compared, _change(energies)))
    wanted = profile.readings_wanted
    window_s = profile.channels[0].channel.span_s
    readings = [_readings(state.channels.get(TOTAL), wanted, window_s > state.time_s) for state in states]
    rows.append(_row("readings inside it", readings, compared))
    return Table("Power and energy", tuple(columns), tuple(rows))


def facts(profile: Profile) -> list[tuple[str, str]]:
    """What the accuracy of a profile rests on, as (name, text) pairs."""
    clocks = profile.clocks
    pairs = [
        ("runs", _describe_runs(profile)),
        (
            "timestamps",
            f"the GPU's clock runs {number(abs(clocks.drift_ppm), 3)} ppm {'fast' if clocks.drift_ppm >= 0 else 'slow'}; "
            f"timestamps match within ± {quantity(clocks.error_s, 's', 2)}, read {quantity(clocks.delay_s, 's', 2)} after a "
            "request",
        ),
    ]
    counter = profile.counter
    if counter is not None:
        pairs.append(
            (
                "energy counter",
                f"{watts(counter.counter_w)} over {number(counter.seconds, 3)} s of executions; the profile adds up to "
                f"{watts(counter.profile_w)}, {change(counter.difference)}",
            )
        )
    return pairs


def describe_sensors(profile: Profile) -> list[str]:
    """The sensor properties assumed for each channel; channels with the same ones share a line."""
    by_properties: dict[str, list[str]] = {}
    for each in profile.channels:
        channel = each.channel
        window = f"mean over {quantity(channel.window_s, 's', 3)}" if channel.window_s else "instantaneous"
        if channel.lag_s:
            window = f"lag {quantity(channel.lag_s, 's', 3)}"
        source = f" ({channel.source})" if channel.source else ""
        by_properties.setdefault(f"{window}, updated every {quantity(channel.period_s, 's', 3)}{source}", []).append(
            channel.name
        )
    return [f"{', '.join(names)}: {properties}" for properties, names in by_properties.items()]


def profiles_table(profiles: Sequence[Profile], *, relative: bool = False) -> Table:
    """A row for each profile: mean power of each channel in its last state, and energy.

    Args:
        profiles: to compare.
        relative: power in per cent of the largest in its channel.
    """
    names = list(dict.fromkeys(name for profile in profiles for name in channel_names(profile)))
    largest = {name: max(_means(profiles, name), default=math.nan) for name in names}
    several = len({profile.device for profile in profiles}) > 1
    unit = "%" if relative else "W"
    columns = [Column("Kernel"), *([Column("Device")] if several else [])]
    columns += [Column(f"{name}, {unit}", numeric=True) for name in names]
    columns += [Column(title, numeric=True) for title in ("First, relative to steady", "Time", "Energy")]
    rows = []
    for profile in profiles:
        state, moved = steady(profile), difference(profile)
        powers = []
        for name in names:
            inside = state.channels.get(name)
            factor = 100.0 / largest[name] if relative else 1.0
            powers.append(ABSENT if inside is None else _plus_minus(factor * inside.mean_w, factor * inside.mean_error_w))
        texts = (
            subject(profile), *([f"{profile.device}, {profile.origin}"] if several else []), *powers,
            ABSENT if moved is None else change(1.0 / (1.0 + moved) - 1.0, 1),
            quantity(state.time_s, "s"), energy_text(state),
        )  # fmt: skip
        rows.append(Row(None, texts, texts, None if profile.complete else f"{subject(profile)}: incomplete"))
    note = "At steady power (SSP); first: the first execution at full speed (SSE)."
    if any(profile.before for profile in profiles):
        note += " After other kernels: of the one execution that follows them."
    return Table("Mean power", tuple(columns), tuple(rows), note)


def _means(profiles: Sequence[Profile], name: str) -> list[float]:
    return [steady(profile).channels[name].mean_w for profile in profiles if name in steady(profile).channels]


def _readings(inside: UnitPower | None, wanted: int, averaged: bool) -> str:
    """How many readings there are, and how many were wanted if the sensor resolves a unit."""
    count = 0 if inside is None else inside.readings
    return f"{count:,} (means)" if averaged else f"{count:,} (at least {wanted:,} wanted)"


def _change(values: list[float]) -> str:
    return change(values[0] / values[-1] - 1.0, 1) if len(values) > 1 and values[-1] > 0.0 else ""


def _row(label: str, texts: list[str], compared: bool, changed: str = "") -> Row:
    shown: tuple[str, ...] = (label, *texts, *([changed or ABSENT] if compared else []))
    values: tuple[Value, ...] = shown
    return Row(None, shown, values)
