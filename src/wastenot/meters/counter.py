"""Reads an energy counter that moves in steps: one read at a time, or followed for hours with as few reads as possible.

A read of the counter is expensive (3 to 15 ms on an H200) and says nothing new between steps. So the follower reads only
around the moments at which it expects one:

    counter  ────────────────────────────────────┐            ┌─────
                                                 └── … ───────┘
    reads                                · ·  ·                · ·      with a random phase, so that the step falls
                                        lead                            anywhere between two reads with equal probability
"""

from __future__ import annotations

import math
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from wastenot.devices.protocol import Device
from wastenot.meters.power_log import PowerLog

_GAP_S = 0.001  # between cheap reads while a step is due; expensive ones follow each other immediately
_SHORT_GAP_S = 0.0002
_IDLE_AFTER_S = 2.0  # a counter that has not moved for this long is read only occasionally
_LATE_FRACTION = 0.3  # of the period, after which a late step is awaited with fewer reads
_PERIODS_S = (0.004, 1.0)  # plausible periods of a counter
_REMEMBERED_STEPS = 64  # that the period is estimated from
_MARGIN_S = 0.001  # by which steps may come early
_MAX_EARLY_S = 0.008
_SAMPLE_S = 0.05  # between samples where no counter sets the pace
_LATE_SAMPLE_S = 0.15  # and where one does, but is late
_PROCESSES_S = 1.0  # between queries of the processes that use the device


@dataclass(frozen=True, slots=True)
class CounterStep:
    """A step of the counter, between two reads.

    Attributes:
        before_s, after_s: moments of the last read before it and of the first after it.
        before_j, energy_j: what these reads returned.
    """

    before_s: float
    after_s: float
    before_j: float
    energy_j: float

    @property
    def moment_s(self) -> float:
        """The middle of the interval in which it happened."""
        return 0.5 * (self.before_s + self.after_s)

    @property
    def width_s(self) -> float:
        """Length of that interval."""
        return self.after_s - self.before_s


class CounterReader:
    """Reads a counter and notices its steps; failed reads are skipped.

    Args:
        device: whose counter to read.
        now_s: clock of all moments.
        dated: the moment of a read, as a fraction of its duration: 0.5 is its middle, 1 its end.

    Attributes:
        value_j: as last read; ``None`` before the first successful read.
        moment_s, read_s: of that read, and how long it took.
    """

    def __init__(self, device: Device, now_s: Callable[[], float], dated: float = 0.5) -> None:
        self._device, self._now_s, self._dated = device, now_s, dated
        self.moment_s, self.read_s = -math.inf, 0.0
        self.value_j: float | None = None

    def read(self) -> tuple[bool, CounterStep | None]:
        """Read once: whether that succeeded, and the step since the last successful read, if there was one."""
        begin = self._now_s()
        value = self._device.sensors.energy_j()
        end = self._now_s()
        if value is None:
            return False, None
        before_s, before_j = self.moment_s, self.value_j
        self.moment_s = (1.0 - self._dated) * begin + self._dated * end
        self.read_s, self.value_j = end - begin, value
        if before_j is None or value == before_j:
            return True, None
        return True, CounterStep(before_s, self.moment_s, before_j, value)

    def skip(self, gap_s: float) -> bool:
        """Pass over further reads, each after a gap, that see no step, where the device can tell; says whether any were.

        A simulated device can: it spends no time on reads of which it knows what they say.
        """
        skip_reads = getattr(self._device.sensors, "skip_reads", None)
        if skip_reads is None or not skip_reads(gap_s):
            return False
        self.moment_s = self._now_s() - (1.0 - self._dated) * self.read_s
        return True


class StepFollower:
    """Logs the steps of one device's counter, and samples the cheap sensors once a step.

    :meth:`poll` reads the sensors, from one thread at a time, holding :attr:`lock`. A device whose counter
    reports the energy of ``energy_delay_s`` ago says so by an attribute of that name of its sensors; its steps are logged at
    the moment they report.

    Args:
        device: to follow.
        now_s: host clock of all moments.

    Attributes:
        log: steps and samples so far.
        lock: held while sensors are read. A simulated device must not be used by two threads at once: code that starts tasks
            on one while it is followed holds this.
        has_counter: whether the device has an energy counter; ``None`` until it was first read.
        due_s: when to poll next.
    """

    def __init__(self, device: Device, now_s: Callable[[], float]) -> None:
        self.device = device
        self.log = PowerLog()
        self.lock = threading.Lock()
        self.has_counter: bool | None = None
        self.memory_gauge = False
        self.due_s = 0.0
        self._now_s = now_s
        self._delay_s = float(getattr(device.sensors, "energy_delay_s", 0.0))
        self._phase = random.Random(device.identity.unique_id)
        self._processes: int | None = None
        self._processes_s = -math.inf
        self.restart()

    def restart(self) -> None:
        """Start over after a pause. The log stays."""
        self._reader = CounterReader(self.device, self._now_s)
        self._sampled_s = self._changed_s = -math.inf
        self._first: CounterStep | None = None  # until a second step gives the period
        self._steps: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED_STEPS)  # numbers and moments
        self._period_s: float | None = None
        self._last_width_s = 0.0
        self._early_s = 0.0  # by which to read earlier, having been too late
        self.read_s = 0.0  # running mean of what a read of the counter takes
        self.due_s = 0.0

    def poll(self) -> None:
        """Read what is due, and set :attr:`due_s`."""
        if self._sampled_s == -math.inf or (self.has_counter is False and self._now_s() - self._sampled_s >= _SAMPLE_S):
            self._sample()
        if self.has_counter is False:
            self.due_s = self._now_s() + _SAMPLE_S
            return
        first = self._reader.value_j is None
        with self.lock:
            readable, step = self._reader.read()
        end = self._now_s()
        if not readable:
            self.has_counter, self.due_s = self.has_counter or False, end + _SAMPLE_S
            return
        self.has_counter = True
        took = self._reader.read_s
        self.read_s = took if self.read_s == 0.0 else 0.8 * self.read_s + 0.2 * took
        if first:
            self._changed_s = end
            self.due_s = end + self._gap_s
        elif step is None:
            self.due_s = end + self._wait_s(end)
        else:
            self._changed_s = end
            self._add(step)
            self._sample()
        if self._now_s() - self._sampled_s > _LATE_SAMPLE_S:
            self._sample()

    @property
    def _gap_s(self) -> float:
        return _GAP_S if self.read_s < _GAP_S else _SHORT_GAP_S

    def _wait_s(self, now: float) -> float:
        """Until the next read, where the counter has not moved."""
        unchanged_s = now - self._changed_s
        if unchanged_s > _IDLE_AFTER_S:
            return _SAMPLE_S
        if self._period_s is not None and unchanged_s > (1.0 + _LATE_FRACTION) * self._period_s:
            return 0.05 * self._period_s
        return self._gap_s

    def _add(self, step: CounterStep) -> None:
        if self._period_s is None or not self._steps:
            self._add_first(step)
            return
        low, high = step.before_s, step.after_s
        number, last = self._steps[-1]
        passed = max(1, round((step.moment_s - last) / self._period_s))
        expected = last + passed * self._period_s
        tolerance = 0.5 * self._last_width_s + _MARGIN_S + self._early_s
        if high - low > 2.0 * tolerance and low < expected + tolerance and high > expected - tolerance:
            # The reads were too far apart to place the step; that steps are equidistant places it better.
            low, high = max(low, expected - tolerance), min(high, expected + tolerance)
            self._early_s = min(2.0 * self._early_s + _MARGIN_S, _MAX_EARLY_S)
        else:
            self._last_width_s = high - low
            self._early_s *= 0.8
        moment = 0.5 * (low + high)
        if moment > last:
            self.log.add_steps((moment - self._delay_s, high - low, step.energy_j))
            self._steps.append((number + passed, moment))
            first_number, first = self._steps[0]
            self._period_s = (moment - first) / (number + passed - first_number)
        self._expect_after(moment)

    def _add_first(self, step: CounterStep) -> None:
        period = math.inf if self._first is None else step.moment_s - self._first.moment_s
        if self._first is None or not _PERIODS_S[0] <= period <= _PERIODS_S[1]:
            self._first = step
            self.due_s = self._now_s() + self._gap_s
            return
        first = self._first
        # The step before the first was not observed, but its value was, and steps are equidistant.
        at = first.moment_s - self._delay_s
        earlier = (at - period, 2.0 * first.width_s + step.width_s, first.before_j)
        last = self.log.last_step_s()
        both = ((at, first.width_s, step.before_j), (at + period, step.width_s, step.energy_j))
        self.log.add_steps(*((earlier, *both) if last is None or last < earlier[0] else both))
        self._period_s = period
        self._last_width_s = step.width_s
        self._steps.extend(((0, first.moment_s), (1, step.moment_s)))
        self._expect_after(step.moment_s)

    def _expect_after(self, moment: float) -> None:
        assert self._period_s is not None
        between_reads_s = self.read_s + self._gap_s
        lead = 0.5 * self.read_s + _MARGIN_S + self._early_s + self._phase.random() * between_reads_s
        self.due_s = moment + self._period_s - lead

    def _sample(self) -> None:
        sensors = self.device.sensors
        with self.lock:
            moment = self._now_s()
            power, memory_power = sensors.power_w(), sensors.memory_power_w()
            clocks, temperature, throttled = sensors.clocks(), sensors.temperature_c(), sensors.throttled_s()
            if moment - self._processes_s >= _PROCESSES_S:
                self._processes, self._processes_s = sensors.processes(), moment
        self.memory_gauge = memory_power is not None
        self._sampled_s = moment
        self.log.add_sample(
            moment, power, memory_power, clocks.core_mhz, clocks.memory_mhz, temperature, throttled, self._processes
        )
