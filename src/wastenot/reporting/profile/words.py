"""What a power profile says, in words and as a table: for a terminal and the page alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wastenot.devices.instrument import TOTAL
from wastenot.profiling.result import Inside, Profile, State
from wastenot.reporting.plan.tables import Column, Row, Table, Value
from wastenot.reporting.words import SPACE, change, number, percent, quantity

ABSENT = "–"


def watts(power_w: float, error_w: float | None = None) -> str:
    """Power with its standard error, as far as that makes digits worth showing: ``707.3 ± 0.4 W``."""
    if not math.isfinite(power_w):
        return ABSENT
    return f"{power_w:,.1f}{SPACE}W" if error_w is None else f"{_plus_minus(power_w, error_w)}{SPACE}W"


def _plus_minus(value: float, error: float) -> str:
    digits = 1 if error < 5.0 else 0
    return f"{value:,.{digits}f}{SPACE}±{SPACE}{error:,.{digits}f}"


def subject(profile: Profile) -> str:
    """What was profiled: ``gemm-2048 after 40 × gemv-4096``."""
    before = shown_before(profile)
    return f"{profile.kernel} {before}" if before else profile.kernel


def shown_before(profile: Profile) -> str:
    """What came before the kernel: ``after 40 × gemv-4096``, or nothing."""
    turns = ", in turn"
    if profile.before.endswith(turns):
        return f"in turn with {profile.before.removesuffix(turns)}"
    return f"after {profile.before}" if profile.before else ""


def shortfall(profile: Profile) -> str:
    """What is said of a profile that is not complete: that it is of what was collected, and why no more was."""
    return "what was collected is shown" + (f"; stopped early: {profile.stopped}" if profile.stopped else "")


def unit_word(profile: Profile, number_of: int = 1) -> str:
    """``execution``, or ``group of 5 executions`` where one is too short."""
    if profile.group == 1:
        return "execution" if number_of == 1 else "executions"
    return f"{'group' if number_of == 1 else 'groups'} of {profile.group} executions"


def subtitle(profile: Profile) -> str:
    """Where a figure's numbers come from: kernel, device, runs, measured or simulated."""
    return f"{subject(profile)} on {profile.device} · {runs_words(profile)} · {profile.origin} numbers"


def runs_words(profile: Profile) -> str:
    """How many runs, and which of them count."""
    which = f"golden (times within {percent(profile.margin, 0)})"
    if profile.bin_rank:
        which = f"in the bin of outliers {profile.bin_rank} ({percent(profile.margin, 0)} wide)"
    return f"{profile.runs:,} runs, {profile.golden_runs:,} {which}"


def channel_names(profile: Profile) -> tuple[str, ...]:
    """Of all channels, total first."""
    return tuple(found.channel.name for found in profile.channels)


def timed_channels(profile: Profile) -> tuple[str, ...]:
    """Channels that may be drawn over time; the others average over too long and tell of levels only."""
    return tuple(found.channel.name for found in profile.channels if len(found.mean_w))


def steady(profile: Profile) -> State:
    """The state that a kernel is compared by: SSP, or the one in context."""
    return profile.states[-1]


def difference(profile: Profile) -> float | None:
    """Total power of SSP over that of SSE, less 1; ``None`` in context."""
    if len(profile.states) < 2:
        return None
    first, last = (state.channels.get(TOTAL) for state in (profile.states[0], profile.states[-1]))
    return None if first is None or last is None else last.mean_w / first.mean_w - 1.0


def energy_words(state: State) -> str:
    """Energy of the state's unit."""
    return quantity(state.energy_j, "J") if TOTAL in state.channels else ABSENT


def state_table(profile: Profile) -> Table:
    """A column for each state, and how much the last differs from the first."""
    states = profile.states
    compared = len(states) > 1
    columns = [Column(""), *(Column(state.name, numeric=True) for state in states)]
    columns += [Column("change", numeric=True)] if compared else []
    rows = [
        _row(f"{unit_word(profile)} of the run", [f"{state.unit:,}" for state in states], compared),
        _row("time", [quantity(state.time_s, "s") for state in states], compared, _change([s.time_s for s in states])),
    ]
    for name in channel_names(profile):
        found = [state.channels.get(name) for state in states]
        texts = [ABSENT if one is None else watts(one.mean_w, one.mean_error_w) for one in found]
        label = f"power, {name}" + ("" if name in timed_channels(profile) else " (level)")
        rows.append(_row(label, texts, compared, _change([one.mean_w for one in found if one is not None])))
    energies = [state.energy_j for state in states if TOTAL in state.channels]
    rows.append(_row("energy", [energy_words(state) for state in states], compared, _change(energies)))
    wanted = profile.readings_wanted
    window_s = profile.channels[0].channel.span_s
    readings = [_readings(state.channels.get(TOTAL), wanted, window_s > state.time_s) for state in states]
    rows.append(_row("readings of interest", readings, compared))
    return Table("Power and energy", tuple(columns), tuple(rows))


def facts(profile: Profile) -> list[tuple[str, str]]:
    """How well the profile is known."""
    clocks = profile.clocks
    found = [
        ("runs", runs_words(profile)),
        (
            "clocks",
            f"the GPU's runs {number(abs(clocks.drift_ppm), 3)} ppm {'faster' if clocks.drift_ppm >= 0 else 'slower'}; "
            f"moments told to ± {quantity(clocks.error_s, 's', 2)}, read {quantity(clocks.delay_s, 's', 2)} after asking",
        ),
    ]
    check = profile.counter
    if check is not None:
        found.append(
            (
                "energy counter",
                f"{watts(check.counter_w)} over {number(check.seconds, 3)} s, the profile says {watts(check.profile_w)}: "
                f"{change(check.difference)}",
            )
        )
    return found


def sensor_words(profile: Profile) -> list[str]:
    """What the channels were taken to be, those alike together."""
    alike: dict[str, list[str]] = {}
    for found in profile.channels:
        channel = found.channel
        window = f"mean over {quantity(channel.window_s, 's', 3)}" if channel.window_s else "moments"
        if channel.lag_s:
            window = f"lags by {quantity(channel.lag_s, 's', 3)}"
        source = f" ({channel.source})" if channel.source else ""
        alike.setdefault(f"{window}, new each {quantity(channel.period_s, 's', 3)}{source}", []).append(channel.name)
    return [f"{', '.join(names)}: {words}" for words, names in alike.items()]


def profiles_table(profiles: Sequence[Profile], *, relative: bool = False) -> Table:
    """A row for each profile: mean power of each channel in its last state, and energy.

    Args:
        profiles: to be set side by side.
        relative: power as a share of the largest of its channel.
    """
    names = list(dict.fromkeys(name for profile in profiles for name in channel_names(profile)))
    largest = {name: max(_means(profiles, name), default=math.nan) for name in names}
    several = len({profile.device for profile in profiles}) > 1
    unit = "%" if relative else "W"
    columns = [Column("Kernel"), *([Column("Device")] if several else [])]
    columns += [Column(f"{name}, {unit}", numeric=True) for name in names]
    columns += [Column(title, numeric=True) for title in ("SSE → SSP", "Time", "Energy")]
    rows = []
    for profile in profiles:
        state, moved = steady(profile), difference(profile)
        powers = []
        for name in names:
            found = state.channels.get(name)
            factor = 100.0 / largest[name] if relative else 1.0
            powers.append(ABSENT if found is None else _plus_minus(factor * found.mean_w, factor * found.mean_error_w))
        texts = (
            subject(profile), *([f"{profile.device}, {profile.origin}"] if several else []), *powers,
            ABSENT if moved is None else change(moved, 1), quantity(state.time_s, "s"), energy_words(state),
        )  # fmt: skip
        rows.append(Row(None, texts, texts, None if profile.complete else f"{subject(profile)}: incomplete"))
    note = "Of SSP, the steady state of a kernel by itself; after others: of one execution in their wake."
    return Table("Mean power, side by side", tuple(columns), tuple(rows), note)


def _means(profiles: Sequence[Profile], name: str) -> list[float]:
    return [steady(profile).channels[name].mean_w for profile in profiles if name in steady(profile).channels]


def _readings(found: Inside | None, wanted: int, averaged: bool) -> str:
    """How many there are; of means over more than the unit none is asked for."""
    number_of = 0 if found is None else found.readings
    return f"{number_of:,} (means)" if averaged else f"{number_of:,} (wanted {wanted:,})"


def _change(values: list[float]) -> str:
    return change(values[-1] / values[0] - 1.0, 1) if len(values) > 1 and values[0] > 0.0 else ""


def _row(label: str, texts: list[str], compared: bool, changed: str = "") -> Row:
    shown: tuple[str, ...] = (label, *texts, *([changed] if compared else []))
    values: tuple[Value, ...] = shown
    return Row(None, shown, values)
