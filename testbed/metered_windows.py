"""Power known exactly, and counters that follow it as real ones do."""

from __future__ import annotations

import numpy as np

from wastenot.devices.protocol import ClockReading, Identity
from wastenot.meters.window_energy import Steps

PERIOD_S = 0.10002


class Power:
    """Power that is constant between moments."""

    def __init__(self, moments_s, power_w):
        self.moments_s = np.asarray(moments_s, dtype=float)
        self.energies_j = np.concatenate([[0.0], np.cumsum(np.diff(self.moments_s) * power_w)])

    def used_j(self, moment_s):
        return np.interp(moment_s, self.moments_s, self.energies_j)

    def between_j(self, begin_s, end_s):
        return float(self.used_j(end_s) - self.used_j(begin_s))


def constant(rng, seconds):
    return Power([0.0, seconds], [300.0])


def alternating(period_s, low_w, high_w):
    def make(rng, seconds):
        edges = np.arange(0, seconds / period_s * 2 + 3) * 0.5 * period_s - rng.uniform(0, period_s)
        powers = np.where(np.arange(len(edges) - 1) % 2, high_w, low_w)
        return Power(edges - edges[0] if edges[0] > 0 else edges, powers)

    return make


def telegraph(dwell_s, low_w, high_w):
    def make(rng, seconds):
        edges = np.concatenate([[0.0], np.cumsum(rng.exponential(dwell_s, int(4 * seconds / dwell_s)))])
        return Power(edges, np.where(np.arange(len(edges) - 1) % 2, high_w, low_w))

    return make


def counted(power, rng, seconds, *, noise_w=2.5, width_s=0.0035):
    """Steps of a counter of some power, seen as they are seen on an H200."""
    moments = np.arange(rng.uniform(0, PERIOD_S), seconds, PERIOD_S)
    used = np.diff(power.used_j(moments)) + noise_w * PERIOD_S * rng.standard_normal(len(moments) - 1)
    energies = np.floor(1000 * np.concatenate([[0.0], np.cumsum(used)])) / 1000
    seen = moments + rng.uniform(-width_s / 2, width_s / 2, len(moments))
    return Steps(seen, np.full(len(moments), width_s), energies)


def near(steps, begin_s, end_s):
    """Those that a log would give for a window."""
    first = max(int(np.searchsorted(steps.moment_s, begin_s)) - 6, 0)
    last = int(np.searchsorted(steps.moment_s, end_s)) + 6
    return Steps(steps.moment_s[first:last], steps.width_s[first:last], steps.energy_j[first:last])


class FakeSensors:
    """Sensors on a clock of their own, whose counter takes time to read."""

    def __init__(self, power, *, read_s=0.003, counter=True, gauge=True, memory_w=None):
        self.power, self.read_s = power, read_s
        self.counter, self.gauge, self.memory_w = counter, gauge, memory_w
        self.now_s, self.reads, self.phase_s = 10.0, 0, 0.0371

    def energy_j(self):
        self.reads += 1
        self.now_s += 0.5 * self.read_s
        step = np.floor((self.now_s - self.phase_s) / PERIOD_S)
        value = float(self.power.used_j(self.phase_s + step * PERIOD_S))
        self.now_s += 0.5 * self.read_s
        return value if self.counter else None

    def power_w(self):
        self.now_s += 4e-6
        return self.power.between_j(self.now_s - 0.025, self.now_s) / 0.025 if self.gauge else None

    def memory_power_w(self):
        return self.memory_w

    def clocks(self):
        return ClockReading(1500.0, None)

    def temperature_c(self):
        return 50.0

    def throttled_s(self):
        return 0.25 * self.now_s

    def traffic_s(self, now_s):
        return None

    def processes(self):
        return 1


class FakeTime:
    def __init__(self, sensors):
        self.sensors = sensors

    def now_s(self):
        return self.sensors.now_s

    def sleep(self, seconds):
        self.sensors.now_s += seconds


class FakeDevice:
    """A device of fake sensors, that claims to be real so that its time is taken as it is."""

    def __init__(self, sensors, name="nvidia:7"):
        self.sensors = sensors
        self.time = FakeTime(sensors)
        self.identity = Identity(name, "Fake GPU", f"GPU-{name}", "driver 0", "measured", unique_name=False)
