"""Settings within the bounds of a policy: what auto means there, what is nearest, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from wastenot.core.setting import Setting
from wastenot.devices.clockd.policy import Bounds
from wastenot.devices.clockd.refused import RefusedError
from wastenot.devices.common.clocks import Auto
from wastenot.devices.common.gpu_driver import ClockSetter, Kind


def widest(bounds: Bounds, clocks: Mapping[float, tuple[float, ...]]) -> Auto:
    """What auto means within bounds: the driver's own choice where they include the highest clock, else the highest of them.

    What may not be set is left as it was found: an administrator's lock stays.
    """
    ceilings, kept = dict[Kind, float](), set[Kind]()
    cores = {core for each in clocks.values() for core in each}
    within: list[tuple[Kind, tuple[float, float] | None, set[float]]] = [
        ("core", bounds.core_mhz, cores), ("memory", bounds.memory_mhz, {*clocks})
    ]  # fmt: skip
    for kind, allowed, have in within:
        possible = {clock for clock in have if allowed is not None and allowed[0] <= clock <= allowed[1]}
        if not possible:
            kept.add(kind)
        elif max(possible) < max(have):
            ceilings[kind] = max(possible)
    if bounds.power_limit_w is None:
        kept.add("power")
    if not bounds.profiles:
        kept.add("profile")
    return Auto(ceilings, frozenset(kept))


def within_bounds(setting: Setting, bounds: Bounds, setter: ClockSetter) -> Setting:
    """The setting that the bounds allow and that is nearest; auto for what may not be set."""
    clocks = setter.supported_clocks()
    memory = _nearest(setting.memory_mhz, bounds.memory_mhz, [*clocks])
    cores = clocks.get(max(clocks, default=0.0) if memory is None else memory, ())
    core = _nearest(setting.core_mhz, bounds.core_mhz, cores)
    limits, allowed, limit_w = setter.power_limit_range_w(), bounds.power_limit_w, setting.power_limit_w
    within = Setting(core, memory, None, setting.profile if setting.profile in bounds.profiles else None)
    if limit_w is None or limits is None or allowed is None:
        return within
    low, high = max(allowed[0], limits[0]), min(allowed[1], limits[1])
    return replace(within, power_limit_w=min(max(limit_w, low), high) if low <= high else None)


def _nearest(value: float | None, allowed: tuple[float, float] | None, have: Sequence[float]) -> float | None:
    possible = [clock for clock in have if allowed is not None and allowed[0] <= clock <= allowed[1]]
    return None if value is None or not possible else min(possible, key=lambda clock: abs(clock - value))


def check(uuid: str, name: str, value: float | None, bounds: tuple[float, float] | None) -> None:
    """Refuse a part of a setting of a GPU that is out of its bounds, by a RefusedError that says what is allowed."""
    if value is None:
        return
    what = {"core_mhz": "core clock", "memory_mhz": "memory clock", "power_limit_w": "power limit"}[name]
    if bounds is None:
        raise RefusedError("policy", f"{uuid}: the policy of wastenotd does not let you set its {what}")
    low, high = bounds
    if not low <= value <= high:
        unit = "W" if name == "power_limit_w" else "MHz"
        raise RefusedError("policy", f"{uuid}: the policy of wastenotd allows a {what} of {low:g} to {high:g} {unit}")
