"""Mean power over an interval with its standard error, from a counter that moves in steps or a gauge that averages.

The counter is read around its steps, since between them it stands still:

    counter        ┌────────┐        ┌──── e1          power = (e1 − e0) / (t1 − t0)
            ┌──────┘ e0     └────────┘
    reads   · · · · ·               · · ·             a step happened between two reads; the interval between these
               t0                     t1              enters the standard error
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import DeviceError
from wastenot.devices.protocol import Device
from wastenot.meters.counter import CounterReader, CounterStep

_LONGEST_STEP_S = 2.0  # a counter that stands still for longer while the GPU works is broken
_READ_GAP_S = 0.002  # between reads while a step is awaited
_LEAD_FRACTION = 0.06  # of the period: how long before an expected step reading begins
_GAUGE_GAP_S = 0.005
_FED_EVERY_S = 0.05  # while nothing else happens
_MAX_CORRELATION = 0.95

_HIGHEST_ORDER = 6
_READINGS_PER_ORDER = 5
_MIN_VARIANCE_FRACTION = 0.05  # of the variance of independent readings: so few readings cannot show less


@dataclass(frozen=True, slots=True)
class MeanPower:
    """Mean power with its standard error, over some seconds; the error is infinite where there are too few readings."""

    power_w: float
    error_w: float
    seconds: float

    @property
    def relative_error(self) -> float:
        """The error as a fraction of the power."""
        return self.error_w / self.power_w if self.power_w else math.inf


class CounterMeter:
    """Mean power from an energy counter.

    Args:
        device: with a counter.
        feed: called often while waiting, to keep the GPU busy.
    """

    def __init__(self, device: Device, feed: Callable[[], None]) -> None:
        self._device = device
        self._feed = feed
        self._steps: list[CounterStep] = []
        self._period_s = 0.0
        self._phase = random.Random(0)

    def begin(self) -> None:
        """Wait for a step, at which the measurement begins. Finds the counter's period on the way."""
        first = self._next_step()
        second = self._next_step()
        self._period_s = second.moment_s - first.moment_s
        self._steps = [second]
        self._phase.seed(second.energy_j)

    def lap(self, seconds: float) -> None:
        """Let about this much time pass, up to a step."""
        periods = max(1, round(seconds / self._period_s))
        last = self._steps[-1]
        # Begin to read at another phase each time: then the step falls anywhere between two reads with equal probability,
        # which is what the error of its moment assumes.
        lead = max(_LEAD_FRACTION * self._period_s, 2 * _READ_GAP_S) + self._phase.random() * last.width_s
        until_s = last.moment_s + periods * self._period_s - lead
        pass_time(self._device, until_s - self._device.time.now_s(), self._feed)
        step = self._next_step()
        passed = round((step.moment_s - last.moment_s) / self._period_s)
        if passed > 0:
            self._period_s = (step.moment_s - last.moment_s) / passed
        self._steps.append(step)

    @property
    def steps(self) -> tuple[CounterStep, ...]:
        """The steps at which laps began and ended."""
        return tuple(self._steps)

    def mean(self) -> MeanPower:
        """Mean power from the first step to the last.

        The error combines the uncertain moments of these two steps with the variation of power from lap to lap.
        """
        moments = np.array([step.moment_s for step in self._steps])
        energies = np.array([step.energy_j for step in self._steps])
        timing = np.array([step.width_s for step in self._steps]) / math.sqrt(12.0)
        duration_s = float(moments[-1] - moments[0])
        power = float(energies[-1] - energies[0]) / duration_s
        timing_variance = power**2 * (timing[0] ** 2 + timing[-1] ** 2) / duration_s**2
        if len(moments) < 4:
            return MeanPower(power, math.inf, duration_s)
        lap_w = np.diff(energies) / np.diff(moments)
        return MeanPower(power, math.hypot(math.sqrt(timing_variance), error_of_mean(lap_w)), duration_s)

    def _next_step(self) -> CounterStep:
        """Read until the counter moves."""
        time = self._device.time
        # Dated to the end of a read, from which the wait for the next step is counted: a constant shift cancels in the mean.
        reader = CounterReader(self._device, time.now_s, dated=1.0)
        deadline_s = time.now_s() + _LONGEST_STEP_S
        while True:
            readable, step = reader.read()
            if not readable:
                raise DeviceError(f"{self._device.identity.name}: the energy counter cannot be read")
            if step is not None:
                return step
            if time.now_s() > deadline_s:
                raise DeviceError(
                    f"{self._device.identity.name}: the energy counter did not change for {_LONGEST_STEP_S:g} s of work"
                )
            if reader.skip(_READ_GAP_S):
                self._feed()
            pass_time(self._device, _READ_GAP_S, self._feed)


class _GaugeMeter:
    """Mean power from a gauge, for devices without a counter: valid in steady state only."""

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
        """Take readings for about this long; a value that has not changed is the same reading."""
        end = self._device.time.now_s() + seconds
        while self._device.time.now_s() < end:
            value = self._device.sensors.power_w()
            if value is None:
                raise DeviceError(f"{self._device.identity.name}: neither energy nor power can be read")
            if not self._readings or value != self._readings[-1]:
                self._readings.append(value)
            pass_time(self._device, _GAUGE_GAP_S, self._feed)

    def mean(self) -> MeanPower:
        """Mean of the readings. Neighbours whose windows overlap are correlated: they count as fewer independent ones."""
        seconds = self._device.time.now_s() - self._began_s
        readings = np.array(self._readings)
        if len(readings) < 3:
            return MeanPower(float(readings.mean()), math.inf, seconds)
        centred = readings - readings.mean()
        variance = float(centred @ centred) / (len(readings) - 1)
        correlation = float(centred[1:] @ centred[:-1]) / float(centred @ centred) if variance else 0.0
        correlation = min(max(correlation, 0.0), _MAX_CORRELATION)
        independent = len(readings) * (1.0 - correlation) / (1.0 + correlation)
        return MeanPower(float(readings.mean()), math.sqrt(variance / max(independent, 1.0)), seconds)


def power_meter(device: Device, feed: Callable[[], None]) -> CounterMeter | _GaugeMeter:
    """The best meter that the device has sensors for."""
    return _GaugeMeter(device, feed) if device.sensors.energy_j() is None else CounterMeter(device, feed)


def pass_time(device: Device, seconds: float, feed: Callable[[], None]) -> None:
    """Let time pass while the GPU is kept busy."""
    if getattr(device.time, "virtual", False) and seconds > 0.0:  # of a simulated device
        device.time.sleep(seconds)
        feed()
        return
    while seconds > 0.0:
        step = min(seconds, _FED_EVERY_S)
        device.time.sleep(step)
        feed()
        seconds -= step


def error_of_mean(values: FloatArray) -> float:
    """The standard error of the mean of equidistant readings, which may be correlated.

    A power limit makes power swing about a mean with a period of about a second, so that high laps follow low ones and the
    mean is known far better than the scatter suggests; a GPU that warms up drifts, and the mean is known less well. An
    autoregressive model covers both: its spectral density at frequency zero, divided by the number of readings, is the
    variance of the mean (Heidelberger and Welch, Communications of the ACM 24, 1981). Its order is chosen by Akaike's
    criterion, its coefficients by the Yule-Walker equations (Levinson-Durbin recursion).

    Args:
        values: shape (readings,), at least 2.
    """
    number = len(values)
    centred = values - values.mean()
    highest = min(_HIGHEST_ORDER, number // _READINGS_PER_ORDER)
    covariance = [float(centred[lag:] @ centred[: number - lag]) / number for lag in range(highest + 1)]
    if covariance[0] <= 0.0:
        return 0.0
    residual = density = covariance[0]
    order, best = 0, number * math.log(residual)
    coefficients = np.zeros(0)
    for tried in range(1, highest + 1):
        partial = (covariance[tried] - float(coefficients @ covariance[1:tried][::-1])) / residual
        coefficients = np.append(coefficients - partial * coefficients[::-1], partial)
        residual *= 1.0 - partial**2
        if residual <= 0.0:
            break
        criterion = number * math.log(residual) + 2.0 * tried
        if criterion < best:
            order, best, density = tried, criterion, residual / (1.0 - float(coefficients.sum())) ** 2
    density = max(density, _MIN_VARIANCE_FRACTION * covariance[0])
    # A variance estimated from few readings is uncertain: widened as Student's t would.
    return math.sqrt(density / max(1, number - order - 3))
