"""How fast a sensor is: what a read costs, and how often its value changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from wastenot.devices.protocol import Device, TimeSource

_READS = 50
_POLLED_S = 2e-4  # pause between polls of a sensor that has just changed
_LATE = 0.01  # of the time since the last change, by which the next may be noticed late


@dataclass(frozen=True, slots=True)
class SensorSpeed:
    """Speed of one sensor.

    Attributes:
        there: whether it can be read.
        value: as last read; ``None`` where it cannot be.
        read_s: median cost of a read.
        slowest_read_s: the slowest read.
        period_s: median time between changes; ``None`` where there were too few.
    """

    name: str
    there: bool
    value: float | None
    unit: str
    read_s: float | None
    slowest_read_s: float | None
    period_s: float | None


def probe_sensors(device: Device, seconds: float = 1.5) -> tuple[SensorSpeed, ...]:
    """Probe every sensor of a device. Readings that do not change, as at idle, show no period.

    Args:
        device: to probe.
        seconds: for each sensor.
    """
    sensors = device.sensors
    readers: tuple[tuple[str, str, Callable[[], float | None]], ...] = (
        ("energy counter", "J", sensors.energy_j),
        ("power", "W", sensors.power_w),
        ("memory power", "W", sensors.memory_power_w),
        ("core clock", "MHz", lambda: sensors.clocks().core_mhz),
        ("memory clock", "MHz", lambda: sensors.clocks().memory_mhz),
        ("temperature", "°C", sensors.temperature_c),
        ("throttled time", "s", sensors.throttled_s),
    )
    return tuple(probe(name, unit, read, device.time, seconds) for name, unit, read in readers)


def probe(name: str, unit: str, read: Callable[[], float | None], time: TimeSource, seconds: float) -> SensorSpeed:
    """Read one sensor over and over.

    Args:
        name: of the sensor.
        unit: of its values.
        read: reads it.
        time: of the device.
        seconds: to wait for changes.
    """
    last = read()
    if last is None:
        return SensorSpeed(name, False, None, unit, None, None, None)
    costs: list[float] = []
    changes: list[float] = []
    before = began = changed_s = time.now_s()
    while before - began < seconds:
        value = read()
        now = time.now_s()
        if len(costs) < _READS:
            costs.append(now - before)
        if value is not None and value != last:
            changes.append(now)
            last, changed_s = value, now
        if now - before < 1e-4:  # polling a cheap sensor without pause would occupy a processor
            time.sleep(max(_POLLED_S, _LATE * (now - changed_s)))
        before = time.now_s()
    gaps = [later - earlier for earlier, later in pairwise(changes)]
    period = median(gaps) if len(gaps) >= 3 else None
    return SensorSpeed(name, True, last, unit, median(costs), max(costs), period)
