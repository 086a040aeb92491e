"""``recorded:STUDY``: a measured study replayed as a device, which runs and returns only what was measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wastenot.core.errors import CannotRunError, ClocksRefusedError
from wastenot.core.setting import Setting
from wastenot.core.suggest import suggestion
from wastenot.devices.protocol import Identity, Task
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.engine import Engine
from wastenot.devices.simulated.hardware import CounterModel, Noise, SensorModels, Switching, Thermal
from wastenot.devices.simulated.physics import OperatingPoint
from wastenot.devices.simulated.sensors import SimulatedSensors
from wastenot.planning.costs import Costs, combine_repeats
from wastenot.study.sweep import Sweep

_ROOM_C = 25.0


class RecordedPhysics:
    """Times and energies of a sweep, whose repeats are averaged."""

    def __init__(self, sweep: Sweep) -> None:
        self._costs: Costs = combine_repeats(sweep)
        self._row = {
            (self._costs.kernels[self._costs.kernel[row]].name, self._costs.setting(row)): row
            for row in range(len(self._costs.time_s))
        }
        self._settings = {setting for _, setting in self._row}
        self._names = [kernel.name for kernel in self._costs.kernels]

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """Core clocks that some kernel was measured at, for each memory clock."""
        found: dict[float, set[float]] = {}
        for setting in self._settings:
            if setting.core_mhz is not None and setting.memory_mhz is not None:
                found.setdefault(setting.memory_mhz, set()).add(setting.core_mhz)
        return {memory: tuple(sorted(found[memory])) for memory in sorted(found)}

    def power_limits_w(self) -> tuple[float, float] | None:
        """Range of the power limits that were measured."""
        limits = [setting.power_limit_w for setting in self._settings if setting.power_limit_w is not None]
        return (min(limits), max(limits)) if limits else None

    def profiles(self) -> tuple[str, ...]:
        """Names of the profiles that were measured."""
        return tuple(sorted({setting.profile for setting in self._settings if setting.profile is not None}))

    def limited_settings(self) -> tuple[Setting, ...]:
        """Settings with a power limit that were measured, in an order that changes each part rarely."""
        found = [setting for setting in self._settings if setting.power_limit_w is not None]
        found.sort(key=lambda each: (each.power_limit_w or 0.0, each.memory_mhz or 0.0, each.core_mhz or 0.0), reverse=True)
        return tuple(found)

    def check(self, setting: Setting) -> None:
        """Refuse a setting at which no kernel was measured."""
        if setting not in self._settings:
            raise ClocksRefusedError(f"the recording has no measurement at {setting}")

    def operating_point(self, task: Task, setting: Setting, temperature_c: float) -> OperatingPoint:
        """What was measured of the task as a whole, else the sums over its kernels."""
        steps = [(kernel.name, calls) for kernel, calls in task.steps]
        if task.name in self._names:
            steps = [(task.name, 1)]
        rows = [(self._find(name, setting), calls) for name, calls in steps]
        time = sum(calls * float(self._costs.time_s[row]) for row, calls in rows)
        energy = sum(calls * float(self._costs.energy_j[row]) for row, calls in rows)
        core, memory = (np.nan if clock is None else clock for clock in (setting.core_mhz, setting.memory_mhz))
        return OperatingPoint(time, energy / time, core, memory, False)

    def idle_power_w(self, setting: Setting, temperature_c: float) -> float:
        """0: idle power is not recorded."""
        return 0.0

    waiting_power_w = idle_power_w

    def _find(self, name: str, setting: Setting) -> int:
        if name not in self._names:
            raise CannotRunError(f"the recording has no kernel '{name}'; {suggestion(name, self._names)}")
        row = self._row.get((name, setting))
        if row is None:
            raise CannotRunError(f"the recording has no measurement of kernel '{name}' at {setting}")
        return row


def recorded_device(sweep: Sweep, name: str) -> SimulatedDevice:
    """A device that replays a sweep, without noise.

    Args:
        sweep: the measurements.
        name: of the device, as the user gave it.
    """
    thermal = Thermal(
        ambient_c=_ROOM_C, resistance_c_per_w=0, time_constant_s=1, leakage_per_c=0, reference_c=_ROOM_C, limit_c=100
    )
    engine = Engine(RecordedPhysics(sweep), thermal, Switching(), Noise(), seed=0)
    sensors = SensorModels(energy=CounterModel(period_s=1e-3, quantum_j=1e-9))
    identity = Identity(name, sweep.device, f"{sweep.device}/{sweep.key}", "recording", sweep.origin)
    return SimulatedDevice(identity, engine, SimulatedSensors(engine, sensors), _ROOM_C)
