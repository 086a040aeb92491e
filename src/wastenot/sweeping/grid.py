"""The clocks of a sweep: which settings, in which order, and which of them a device takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.devices.recorded import RecordedPhysics
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.sweeping.defaults import CORE_STEP_MHZ


@dataclass(frozen=True, slots=True)
class Grid:
    """Settings to sweep besides auto.

    Attributes:
        core_step_mhz: between core clocks, counted down from the highest; ``None`` for every one the device has.
        core_mhz: core clocks instead of a step.
        memory_mhz: memory clocks; ``None`` for every one the device has.
        power_limit_w: power limits; each with the default clocks, or with each pair of clocks where any of the above is
            given. ``None`` leaves the limit to the driver.
        profile: workload power profiles to measure besides, each with everything else left to the driver.
    """

    core_step_mhz: float | None = None
    core_mhz: Sequence[float] | None = None
    memory_mhz: Sequence[float] | None = None
    power_limit_w: Sequence[float] | None = None
    profile: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.core_mhz is not None and self.core_step_mhz is not None:
            raise BadInputError("`core_step_mhz`, `core_mhz`: use only one of them")
        for name in ("core_mhz", "memory_mhz", "power_limit_w"):  # arrays, too
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else tuple(map(float, given)))

    def settings(
        self, states: Mapping[float, Sequence[float]], limits_w: tuple[float, float] | None = None
    ) -> tuple[Setting, ...]:
        """The settings of a device, in an order that changes each part as rarely and as little as can be.

        Power limits from high to low; under each the memory clocks likewise; under each the core clocks, alternately down
        and up.

        Args:
            states: core clocks that go with each memory clock.
            limits_w: lowest and highest power limit of the device; ``None`` where it cannot be set.

        Raises:
            BadInputError: a clock or limit that the device does not have, or a step that is not positive.
        """
        if self.power_limit_w is None:
            return self._clocks(states)
        for limit in self.power_limit_w:
            if limits_w is None:
                raise BadInputError("`power_limit_w`: this device reports no power limits to choose from; leave it out")
            if not limits_w[0] <= limit <= limits_w[1]:
                raise BadInputError(f"`power_limit_w` {limit:g}: the device takes {limits_w[0]:g} to {limits_w[1]:g} W")
        limits = sorted(set(map(float, self.power_limit_w)), reverse=True)
        alone = self.core_step_mhz is None and self.core_mhz is None and self.memory_mhz is None
        clocks = (AUTO,) if alone else self._clocks(states)
        return tuple(replace(each, power_limit_w=limit) for limit in limits for each in clocks)

    def _clocks(self, states: Mapping[float, Sequence[float]]) -> tuple[Setting, ...]:
        if self.core_step_mhz is not None and not self.core_step_mhz > 0:
            raise BadInputError(f"`core_step_mhz` {self.core_step_mhz:g}: must be a number of MHz above 0")
        memories = sorted(states) if self.memory_mhz is None else list(dict.fromkeys(map(float, self.memory_mhz)))
        chosen: list[Setting] = []
        for index, memory in enumerate(sorted(memories, reverse=True)):
            if memory not in states:
                known = ", ".join(f"{clock:g}" for clock in sorted(states))
                raise BadInputError(f"`memory_mhz` {memory:g}: the device has {known} MHz")
            cores = self._cores(states[memory])
            chosen += [Setting(core, memory) for core in (cores[::-1] if index % 2 == 0 else cores)]
        return tuple(chosen)

    def _cores(self, available: Sequence[float]) -> list[float]:
        if self.core_mhz is not None:
            for clock in self.core_mhz:
                if clock not in available:
                    near = min(available, key=lambda there: abs(there - clock))
                    raise BadInputError(f"`core_mhz` {clock:g}: the device has no such clock; the nearest is {near:g} MHz")
            return sorted(set(map(float, self.core_mhz)))
        clocks = np.array(sorted(available))
        if self.core_step_mhz is None:
            return [float(clock) for clock in clocks]
        # From the highest down, since that is where plans are made; each clock the nearest there is.
        wanted = np.arange(clocks[-1], clocks[0] - 1e-9, -self.core_step_mhz)
        nearest = {float(clocks[np.abs(clocks - clock).argmin()]) for clock in wanted}
        return sorted(nearest)


@dataclass(frozen=True, slots=True)
class AtAuto:
    """The default clocks only, where nothing is set; ``rounds`` is how often everything is measured."""

    rounds: int = 1


@dataclass(frozen=True, slots=True)
class AtNatural:
    """The clocks that the device passes through by itself; ``seconds_each`` is device time that a kernel may take."""

    seconds_each: float = 18.0


@dataclass(frozen=True, slots=True)
class Search:
    """Of a grid only the points that can still change the plan.

    Attributes:
        share: fraction of the grid that may be measured; where that is little, the outcome's notes say what stays at the
            default clocks.
        max_slowdown: of the plans that it looks for.
        grid: to search.
    """

    share: float = 0.3
    max_slowdown: float = 0.0
    grid: Grid = Grid()

    def __post_init__(self) -> None:
        if self.grid.power_limit_w is not None or self.grid.profile:
            raise BadInputError(
                "`search` model, `power_limit_w`, `profile`: a search is among clocks; use the grid for the others"
            )


def settings_of(device: Device, grid: Grid, *, dry_run: bool = False) -> tuple[Setting, ...]:
    """The settings of a grid that a device takes, as far as is known without setting one in a dry run.

    Where the grid says nothing about core clocks they are :data:`CORE_STEP_MHZ` apart; those of a recording are all that it
    has, and where the grid says nothing at all, its settings with a power limit are among them.

    Raises:
        BadInputError: a clock or limit that the device does not have.
        ClocksRefusedError: they cannot be set.
    """
    stepped = grid
    if grid.core_step_mhz is None and grid.core_mhz is None and grid.power_limit_w is None:
        recorded = device.identity.name.startswith("recorded:")
        stepped = replace(grid, core_step_mhz=None if recorded else CORE_STEP_MHZ)
    limits_w, refusal = device.clocks.power_limits_w(), device.clocks.refusal()
    if limits_w is None and refusal is not None and grid.power_limit_w is not None:
        if not dry_run:
            raise ClocksRefusedError(f"{device.identity.name}: power limits cannot be set: {refusal}")
        limits_w = (0.0, math.inf)
    settings = stepped.settings(device.clocks.supported_clocks(), limits_w)
    profiles = _profiles(device, grid, dry_run=dry_run)
    if grid == Grid():
        physics = device.engine.physics if isinstance(device, SimulatedDevice) else None
        settings += physics.limited_settings() if isinstance(physics, RecordedPhysics) else ()
    return (*(settings if settings and dry_run else settable(device, settings)), *profiles)


def _profiles(device: Device, grid: Grid, *, dry_run: bool) -> tuple[Setting, ...]:
    """The settings of a grid's profiles, once each."""
    available, refusal = device.clocks.profiles() if grid.profile else (), device.clocks.refusal()
    for name in grid.profile:
        if name not in available and not (dry_run and refusal is not None):
            have = f"it has {', '.join(available)}" if available else "it has none that may be set here"
            raise BadInputError(f"`profile` {name}: {device.identity.name} has no such workload power profile; {have}")
    return tuple(Setting(profile=name) for name in dict.fromkeys(grid.profile))


def check_measures(device: Device) -> None:
    """Refuse a device that reports neither energy nor power.

    Raises:
        BadInputError: it lacks both.
    """
    if device.sensors.energy_j() is None and device.sensors.power_w() is None:
        raise BadInputError(f"{device.identity.name}: neither energy nor power can be read, so nothing can be measured")


def settable(device: Device, settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """The settings that a device takes: all of them, or with its own memory clock where that cannot be set.

    Raises:
        ClocksRefusedError: it has no clocks to set, or they may not be touched.
    """
    if not settings:
        raise ClocksRefusedError(
            f"{device.identity.name}: reports no clocks to set; measure at its default clocks: --clocks auto"
        )
    try:
        device.clocks.request(settings[0])
        return tuple(settings)
    except ClocksRefusedError as error:
        highest = max(setting.memory_mhz or 0.0 for setting in settings)
        core_only = tuple(
            Setting(setting.core_mhz, None, setting.power_limit_w) for setting in settings if setting.memory_mhz == highest
        )
        try:
            device.clocks.request(core_only[0])
        except (ClocksRefusedError, IndexError):
            raise ClocksRefusedError(f"{error.args[0]}; measure at the driver's own clocks: --clocks auto") from error
        return core_only
    finally:
        device.clocks.release()
