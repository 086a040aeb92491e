"""Settings that a running job may be tried at: a ladder of core clocks, one of power limits, and single profiles.

Both, by default. On simulated cards neither is better everywhere: a core clock caps light kernels, in which a power limit is
never felt (RTX 3080 Ti, GPT-3 XL, no slower: −1.9 % energy against 0); a power limit takes from heavy kernels alone (H200,
Llama 8B decoding, no slower: −6.0 % against −1.2 %). Which it is cannot be known before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.setting import Setting
from wastenot.devices.protocol import Device

Knob = Literal["clock", "limit", "profile"]

_STEP = 0.01  # between settings of a ladder
_LOWEST_CLOCK = 0.4  # of the highest
WHOLE_W = 5.0  # limits are multiples of this, as people write them


@dataclass(frozen=True, slots=True)
class Ladder:
    """Settings from fast to slow, of which each is expected to be slower than the one before.

    Attributes:
        knob: what they turn.
        settings: the first is already slower than the default clocks may be.
    """

    knob: Knob
    settings: tuple[Setting, ...]

    def ratio(self, first: int, last: int) -> float:
        """Logarithm by which the value of one setting is above that of a later one; −1 stands for the default clocks."""
        return math.log(_value(self.settings[max(first, 0)]) / _value(self.settings[last])) + (_STEP if first < 0 else 0.0)


def ladders_of(
    devices: Sequence[Device],
    knobs: Sequence[Knob] = ("clock", "limit"),
    *,
    core_mhz: Sequence[float] | None = None,
    power_limit_w: Sequence[float] | None = None,
    profile: Sequence[str] = (),
) -> tuple[Ladder, ...]:
    """What to try on GPUs that are to run alike.

    Args:
        devices: the GPUs.
        knobs: to turn.
        core_mhz: core clocks to choose from, instead of steps of 1 %.
        power_limit_w: power limits to choose from, likewise.
        profile: workload power profiles to try besides; each is a ladder of its own, as none is known to be slower.

    Raises:
        BadInputError: a clock or limit was named that a GPU does not have.
        ClocksRefusedError: nothing could be tried on them.
    """
    found = []
    if "clock" in knobs:
        found.append(Ladder("clock", tuple(Setting(core_mhz=mhz) for mhz in _clocks(devices, core_mhz))))
    if "limit" in knobs:
        found.append(Ladder("limit", tuple(Setting(power_limit_w=watts) for watts in _limits(devices, power_limit_w))))
    found += [Ladder("profile", (Setting(profile=name),)) for name in _profiles(devices, profile)]
    found = [ladder for ladder in found if ladder.settings]
    if not found:
        names = ", ".join(device.identity.name for device in devices)
        raise ClocksRefusedError(f"{names}: reports neither clocks nor power limits to try")
    return tuple(found)


def common_clocks(devices: Sequence[Device]) -> list[float]:
    """Core clocks in MHz that all GPUs have, with whatever memory clock, ascending."""
    clocks = ({mhz for row in each.clocks.supported_clocks().values() for mhz in row} for each in devices)
    return sorted(set.intersection(*clocks))


def common_limits_w(devices: Sequence[Device]) -> tuple[float, float] | None:
    """The lowest and the highest power limit that all GPUs take; ``None`` where one reports none."""
    ranges = [limits for each in devices if (limits := each.clocks.power_limits_w()) is not None]
    return None if len(ranges) < len(devices) else (max(low for low, _ in ranges), min(high for _, high in ranges))


def _clocks(devices: Sequence[Device], given: Sequence[float] | None) -> list[float]:
    common = common_clocks(devices)
    if given is not None:
        missing = next((mhz for mhz in given if mhz not in common), None)
        if missing is not None:
            near = min(common, key=lambda mhz: abs(mhz - missing), default=None)
            hint = "it has none" if near is None else f"the nearest is {near:g} MHz"
            raise BadInputError(f"`core_mhz` {missing:g}: the GPU has no such clock; {hint}")
        return sorted(set(given), reverse=True)
    if not common:
        return []
    highest = common[-1]
    return _thinned([mhz for mhz in reversed(common) if _LOWEST_CLOCK * highest <= mhz < highest], highest)


def _limits(devices: Sequence[Device], given: Sequence[float] | None) -> list[float]:
    limits = common_limits_w(devices)
    if limits is None:
        if given is not None:
            raise BadInputError("`power_limit_w`: this GPU reports no power limits to choose from; leave it out")
        return []
    low, high = limits
    if given is not None:
        wrong = next((watts for watts in given if not low <= watts <= high), None)
        if wrong is not None:
            raise BadInputError(f"`power_limit_w` {wrong:g}: the GPU takes {low:g} to {high:g} W")
        return sorted(set(given), reverse=True)
    step_w = WHOLE_W * max(round(_STEP * high / WHOLE_W), 1)
    first = math.ceil(high / step_w) - 1
    return [watts for watts in (index * step_w for index in range(first, 0, -1)) if watts >= low]


def _profiles(devices: Sequence[Device], given: Sequence[str]) -> list[str]:
    common = set.intersection(*(set(device.clocks.profiles()) for device in devices)) if given else set[str]()
    missing = next((name for name in given if name not in common), None)
    if missing is not None:
        have = f"it has {', '.join(sorted(common))}" if common else "it has none that may be set"
        raise BadInputError(f"`profile` {missing}: the GPU has no such workload power profile; {have}")
    return list(dict.fromkeys(given))


def _thinned(falling: Sequence[float], above: float) -> list[float]:
    """Values that are at least a step apart."""
    kept: list[float] = []
    for value in falling:
        if math.log((kept[-1] if kept else above) / value) >= 0.9 * _STEP or not kept:
            kept.append(value)
    return kept


def _value(setting: Setting) -> float:
    return setting.core_mhz or setting.power_limit_w or 1.0
