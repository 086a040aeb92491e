"""What is switched between what: a few values of each kind, such as core clocks from the lowest to the highest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.devices.protocol import Device
from wastenot.planning.latency import What
from wastenot.planning.switching import SwitchTime

KINDS: tuple[What, ...] = get_args(What)
CORE_CLOCKS = 5
"""How many core clocks are switched between, unless they are named."""

ERROR = 0.012
"""Relative standard error at which a latency is known, unless another is asked for."""

_LIMITS = 4
_ASSUMED_JITTER = 0.3  # until it is measured
_WINDOW = 4.0  # time for a switch over the latency assumed
UNITS: dict[What, str] = {"core": "MHz", "memory": "MHz", "power_limit": "W"}
NAMES: dict[What, str] = {"core": "core clock", "memory": "memory clock", "power_limit": "power limit"}


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one kind.

    Attributes:
        what: changes.
        values: in MHz or watts, ascending; at least two.
    """

    what: What
    values: tuple[float, ...]

    @property
    def name(self) -> str:
        """For people."""
        return NAMES[self.what]

    @property
    def unit(self) -> str:
        """Of the values."""
        return UNITS[self.what]

    def setting(self, value: float) -> Setting:
        """The setting with one of the values, all else left to the driver."""
        match self.what:
            case "core":
                return Setting(core_mhz=value)
            case "memory":
                return Setting(memory_mhz=value)
        return Setting(power_limit_w=value)


@dataclass(frozen=True, slots=True)
class Design:
    """What is to be measured.

    Attributes:
        parts: by kind.
        error: relative standard error of a target's latency at which it counts as known.
        most_s: device time after which no more is begun.
        left_out: kinds that were asked for or could be expected, and why they are not measured.
    """

    parts: tuple[Values, ...]
    error: float
    most_s: float
    left_out: tuple[str, ...] = ()


def design(
    device: Device,
    *,
    kinds: Sequence[What] | None = None,
    core_mhz: Sequence[float] = (),
    error: float = ERROR,
    most_s: float = math.inf,
) -> Design:
    """What to measure on a device.

    Args:
        device: whose clocks and limits it is about.
        kinds: only these; by default all that the device can change.
        core_mhz: core clocks to switch between; by default five from the lowest to the highest.
        error: relative standard error to reach.
        most_s: device time to spend at most.

    Raises:
        BadInputError: there is nothing to switch, or a number makes no sense.
    """
    if not 0.0 < error < 1.0:
        raise BadInputError(f"`relative_error` {error:g}: must be between 0 and 1, such as 0.02")
    if not most_s > 0.0:
        raise BadInputError(f"`time_limit` {most_s:g}: must be above 0")
    if core_mhz and kinds is not None and "core" not in kinds:
        raise BadInputError("`core`: gives core clocks, but `what` leaves them out; leave out one of them")
    parts, left_out = [], []
    for what in KINDS if kinds is None else tuple(dict.fromkeys(kinds)):
        if what not in KINDS:
            raise BadInputError(f"`what` {what}: there is no such kind; write {', '.join(KINDS)}")
        values, missing = _values(device, what, core_mhz)
        if len(values) > 1:
            parts.append(Values(what, values))
        else:
            left_out.append(f"{NAMES[what]}: {missing}")
    if not parts:
        raise BadInputError(f"{device.identity.name}: there is nothing to switch ({'; '.join(left_out)})")
    return Design(tuple(parts), error, most_s, tuple(left_out))


def estimate_s(planned: Design, expected: SwitchTime) -> float:
    """How long measuring takes on the device, about; from what is known or assumed of its latency."""
    total_s = 2.0
    for part in planned.parts:
        switches = len(part.values) * max((max(expected.jitter, _ASSUMED_JITTER) / planned.error) ** 2, 10.0)
        slowest_s = max(expected.latency_s(part.setting(part.values[0] + 1.0), part.setting(value)) for value in part.values)
        total_s += switches * (_WINDOW * slowest_s + 5e-3) + 3.0 * len(part.values) * (settling_s(slowest_s) + 0.2)
        total_s += 0.0 if part.what == "power_limit" else 250.0 * (_WINDOW * slowest_s + 5e-3)
    return min(total_s, planned.most_s)


def switches_expected(planned: Design, expected: SwitchTime) -> int:
    """How many switches measuring takes, about."""
    each = max((max(expected.jitter, _ASSUMED_JITTER) / planned.error) ** 2, 10.0)
    return round(sum(len(part.values) * each for part in planned.parts))


def settling_s(latency_s: float) -> float:
    """How long to wait, once, until a value is surely in effect."""
    return max(1.0, 5.0 * latency_s)


def _values(device: Device, what: What, core_mhz: Sequence[float]) -> tuple[tuple[float, ...], str]:
    """Values to switch between, and what to say where there are too few."""
    clocks = device.clocks.supported_clocks()
    match what:
        case "core":
            have = clocks[max(clocks)] if clocks else ()
            for clock in core_mhz:
                if clock not in have:
                    nearest = min(have, key=lambda each: abs(each - clock), default=None)
                    raise BadInputError(f"`core` {clock:g}: the device has no such core clock; the nearest is {nearest:g}")
            if len(set(core_mhz)) == 1:
                raise BadInputError(f"`core` {core_mhz[0]:g}: only one was given; give at least two to switch between")
            if core_mhz:
                return tuple(sorted(set(core_mhz))), ""
            places = np.unique(np.round(np.linspace(0, len(have) - 1, min(CORE_CLOCKS, len(have)))).astype(int))
            return tuple(have[place] for place in places.tolist()), "none can be set"
        case "memory":
            return tuple(clocks), "the device has only one"
    limits = device.clocks.power_limits_w()
    if limits is None or limits[0] >= limits[1]:
        return (), "it cannot be set"
    return tuple(round(watts) * 1.0 for watts in np.linspace(*limits, _LIMITS)), ""
