"""Mean power over a stretch of time, from a counter that moves in steps or a gauge that averages.

The counter is read just after its steps, since between them it stands still:

    counter        ┌────────┐        ┌──── e1          power = (e1 − e0) / (t1 − t0)
            ┌──────┘ e0     └────────┘
    reads   · · · · ·               · · ·             a step is seen between two reads: its moment is known to
               t0                     t1              their distance, which enters the standard error
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wastenot.devices.protocol import Device
from wastenot.errors import DeviceError
from wastenot.metering.mean_error import error_of_mean

_LONGEST_STEP_S = 2.0  # a counter that stands still for longer while the GPU works does not count
_APPROACH_S = 0.002  # between reads while a step is awaited
_AHEAD = 0.06  # share of the period before an expected step at which the waiting for it begins


@dataclass(frozen=True, slots=True)
class Edge:
    """A step of the counter.

    Attributes:
        moment_s: the middle of the time in which it happened.
        width_s: of that time.
        energy_j: the counter after it.
    """

    moment_s: float
    width_s: float
    energy_j: float


@dataclass(frozen=True, slots=True)
class MeanPower:
    """Mean power with its standard error; NaN where a single stretch says nothing of it."""

    power_w: float
    error_w: float
    seconds: float


class CounterMeter:
    """Mean power from an energy counter.

    Args:
        device: with a counter.
        feed: called often while waiting, to keep the GPU busy.
    """

    def __init__(self, device: Device, feed: Callable[[], None]) -> None:
        self._device = device
        self._feed = feed
        self._edges: list[Edge] = []
        self._period_s = 0.0
        self._phase = random.Random(0)

    def begin(self) -> None:
        """Wait for a step; the stretch begins there. Finds the counter's period on the way."""
        first = self._next_edge()
        second = self._next_edge()
        self._period_s = second.moment_s - first.moment_s
        self._edges = [second]
        self._phase.seed(second.energy_j)

    def lap(self, seconds: float) -> None:
        """Let about so much time pass, up to a step."""
        steps = max(1, round(seconds / self._period_s))
        last = self._edges[-1]
        # Begin to read at another phase each time: where between two reads the step falls is then as good as random, which
        # is what the error of its moment supposes.
        ahead = max(_AHEAD * self._period_s, 2 * _APPROACH_S) + self._phase.random() * last.width_s
        self._pass(last.moment_s + steps * self._period_s - ahead - self._device.time.now_s())
        edge = self._next_edge()
        passed = round((edge.moment_s - last.moment_s) / self._period_s)
        if passed > 0:
            self._period_s = (edge.moment_s - last.moment_s) / passed
        self._edges.append(edge)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The steps at which laps began and ended."""
        return tuple(self._edges)

    def mean(self) -> MeanPower:
        """Mean power from the first step to the last.

        The error has two parts: that of the moments of the first and the last step, and that of power that changes from
        lap to lap.
        """
        moments = np.array([edge.moment_s for edge in self._edges])
        energies = np.array([edge.energy_j for edge in self._edges])
        timing = np.array([edge.width_s for edge in self._edges]) / math.sqrt(12.0)
        whole_s = float(moments[-1] - moments[0])
        power = float(energies[-1] - energies[0]) / whole_s
        edge_variance = power**2 * (timing[0] ** 2 + timing[-1] ** 2) / whole_s**2
        if len(moments) < 4:
            return MeanPower(power, math.inf, whole_s)
        lap_w = np.diff(energies) / np.diff(moments)
        return MeanPower(power, math.hypot(math.sqrt(edge_variance), error_of_mean(lap_w)), whole_s)

    def _next_edge(self) -> Edge:
        """Read until the counter moves."""
        time = self._device.time
        before_s, standing = time.now_s(), self._read()
        given_up = before_s + _LONGEST_STEP_S
        while True:
            last_s = time.now_s()
            self._pass(_APPROACH_S)
            value = self._read()
            now = time.now_s()
            if value != standing:
                # The reading was taken somewhere between the end of the one before and the end of this one.
                return Edge(0.5 * (last_s + now), now - last_s, value)
            if now > given_up:
                raise DeviceError(
                    f"{self._device.identity.name}: the energy counter stood still for {_LONGEST_STEP_S:g} s of work"
                )

    def _read(self) -> float:
        value = self._device.sensors.energy_j()
        if value is None:
            raise DeviceError(f"{self._device.identity.name}: the energy counter cannot be read")
        return value

    def _pass(self, seconds: float) -> None:
        pass_time(self._device, seconds, self._feed)


class GaugeMeter:
    """Mean power from a gauge, for devices without a counter: right in steady state only.

    Args:
        device: with a gauge.
        feed: called often while waiting, to keep the GPU busy.
    """

    def __init__(self, device: Device, feed: Callable[[], None]) -> None:
        self._device = device
        self._feed = feed
        self._readings: list[float] = []
        self._began_s = 0.0

    def begin(self) -> None:
        """Begin to take readings."""
        self._began_s = self._device.time.now_s()
        self._readings = []

    def lap(self, seconds: float) -> None:
        """Take readings for about so much time; one that has not changed is the same reading seen again."""
        end = self._device.time.now_s() + seconds
        while self._device.time.now_s() < end:
            value = self._device.sensors.power_w()
            if value is None:
                raise DeviceError(f"{self._device.identity.name}: neither energy nor power can be read")
            if not self._readings or value != self._readings[-1]:
                self._readings.append(value)
            pass_time(self._device, 0.005, self._feed)

    def mean(self) -> MeanPower:
        """Mean of the readings; of such that overlap in time fewer count."""
        seconds = self._device.time.now_s() - self._began_s
        readings = np.array(self._readings)
        if len(readings) < 3:
            return MeanPower(float(readings.mean()), math.inf, seconds)
        centred = readings - readings.mean()
        variance = float(centred @ centred) / (len(readings) - 1)
        alike = float(centred[1:] @ centred[:-1]) / float(centred @ centred) if variance else 0.0
        alike = min(max(alike, 0.0), 0.95)
        independent = len(readings) * (1.0 - alike) / (1.0 + alike)
        return MeanPower(float(readings.mean()), math.sqrt(variance / max(independent, 1.0)), seconds)


def power_meter(device: Device, feed: Callable[[], None]) -> CounterMeter | GaugeMeter:
    """The better of the meters that a device has the sensors for."""
    return GaugeMeter(device, feed) if device.sensors.energy_j() is None else CounterMeter(device, feed)


def pass_time(device: Device, seconds: float, feed: Callable[[], None]) -> None:
    """Let time pass while the GPU is kept busy."""
    while seconds > 0.0:
        step = min(seconds, 0.05)
        device.time.sleep(step)
        feed()
        seconds -= step
