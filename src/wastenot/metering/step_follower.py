"""Follows the steps of one device's energy counter with few reads of it, and samples the cheap sensors once a step.

A read of the counter is dear (3 to 15 ms on an H200), and between its steps it says nothing new. So it is read only about
the moments at which steps are expected:

    counter  ────────────────────────────────────┐            ┌─────
                                                 └── … ───────┘
    reads                                · ·  ·                · ·      at another phase each time, so that where between
                                        lead                            two reads the step falls is as good as random
"""

from __future__ import annotations

import math
import random
import threading
from collections import deque
from collections.abc import Callable

from wastenot.devices.protocol import Device
from wastenot.metering.power_log import PowerLog, Sample

_GAP_S = 0.001  # between cheap reads while a step is awaited; dear ones follow each other at once
_SHORT_GAP_S = 0.0002
_STANDS_S = 2.0  # a counter that has stood still for so long is looked at now and then only
_PATIENCE = 0.3  # share of the period after which a late step is awaited with fewer reads
_PERIODS_S = (0.004, 1.0)  # what a counter's period can be
_REMEMBERED = 64  # steps that the period is found from
_SLACK_S = 0.001  # by which steps come early
_MOST_EARLY_S = 0.008
_SAMPLE_S = 0.05  # between samples where no counter gives the pace
_LATE_SAMPLE_S = 0.15  # and where one does, but is late
_PROCESSES_S = 1.0  # between looks at who uses the device


class StepFollower:
    """Follows one device. Its sensors are read by whoever calls :meth:`poll`, one thread at a time, holding :attr:`lock`.

    Args:
        device: to follow.
        now_s: host clock that moments are on.

    A device whose counter tells of a time ``energy_delay_s`` ago says so by an attribute of that name of its sensors; steps
    are logged for the moment that they tell of.

    Attributes:
        log: what was seen.
        lock: held while sensors are read. A simulated device must not be touched by two threads at once: who starts tasks on
            one while it is followed holds this.
        has_counter: whether the device has an energy counter; ``None`` until it has been looked at.
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
        """Begin anew after a pause. What was seen before stays in the log."""
        self._before: tuple[float, float] | None = None  # moment and value of the read before
        self._first: tuple[float, float, float] | None = None  # the first step, until a second tells the period
        self._seen: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)  # numbers and moments of steps
        self._period_s: float | None = None
        self._last_width_s = 0.0
        self._early_s = 0.0  # by which to come earlier, having come too late
        self._changed_s = self._sampled_s = -math.inf
        self._read_s = 0.0
        self.due_s = 0.0

    def poll(self) -> None:
        """Read what is due, and say in :attr:`due_s` when to come again."""
        begin = self._now_s()
        if self._before is None:
            self._sample()
        if self.has_counter is False:
            if begin - self._sampled_s >= _SAMPLE_S:
                self._sample()
            self.due_s = self._now_s() + _SAMPLE_S
            return
        begin = self._now_s()
        with self.lock:
            value = self.device.sensors.energy_j()
        end = self._now_s()
        if value is None:
            self._before = self._before or (end, math.nan)
            self.has_counter, self.due_s = self.has_counter or False, end + _SAMPLE_S
            return
        self.has_counter = True
        self._read_s = end - begin if self._read_s == 0.0 else 0.8 * self._read_s + 0.2 * (end - begin)
        middle = 0.5 * (begin + end)
        before, self._before = self._before, (middle, value)
        if before is None or math.isnan(before[1]):
            self._changed_s = end
            self.due_s = end + self._gap_s
        elif value == before[1]:
            self.due_s = end + self._wait_s(end)
        else:
            self._changed_s = end
            self._step(before, (middle, value))
            self._sample()
        if self._now_s() - self._sampled_s > _LATE_SAMPLE_S:
            self._sample()

    @property
    def _gap_s(self) -> float:
        return _GAP_S if self._read_s < _GAP_S else _SHORT_GAP_S

    def _wait_s(self, now: float) -> float:
        """Until the next read, the counter not having moved."""
        stood = now - self._changed_s
        if stood > _STANDS_S:
            return _SAMPLE_S
        if self._period_s is not None and stood > (1.0 + _PATIENCE) * self._period_s:
            return 0.05 * self._period_s
        return self._gap_s

    def _step(self, before: tuple[float, float], after: tuple[float, float]) -> None:
        low, high = before[0], after[0]
        if self._period_s is None or not self._seen:
            self._first_steps(0.5 * (low + high), high - low, before[1], after[1])
            return
        number, last = self._seen[-1]
        passed = max(1, round((0.5 * (low + high) - last) / self._period_s))
        expected = last + passed * self._period_s
        near = 0.5 * self._last_width_s + _SLACK_S + self._early_s
        if high - low > 2.0 * near and low < expected + near and high > expected - near:
            # The reads were too far apart to say; that steps come at equal distances says more.
            low, high = max(low, expected - near), min(high, expected + near)
            self._early_s = min(2.0 * self._early_s + _SLACK_S, _MOST_EARLY_S)
        else:
            self._last_width_s = high - low
            self._early_s *= 0.8
        moment = 0.5 * (low + high)
        if moment > last:
            self.log.add_steps((moment - self._delay_s, high - low, after[1]))
            self._seen.append((number + passed, moment))
            first_number, first = self._seen[0]
            self._period_s = (moment - first) / (number + passed - first_number)
        self._expect(moment)

    def _first_steps(self, moment: float, width: float, standing_j: float, energy_j: float) -> None:
        if self._first is None:
            self._first = (moment, width, standing_j)
            self.due_s = self._now_s() + self._gap_s
            return
        first, first_width, before_j = self._first
        period = moment - first
        if not _PERIODS_S[0] <= period <= _PERIODS_S[1]:
            self._first = (moment, width, standing_j)
            self.due_s = self._now_s() + self._gap_s
            return
        # The step before the first was not seen, but what the counter stood at was, and steps come at equal distances.
        at = first - self._delay_s
        earlier = (at - period, 2.0 * first_width + width, before_j)
        last = self.log.last_step_s()
        known = ((at, first_width, standing_j), (at + period, width, energy_j))
        self.log.add_steps(*((earlier, *known) if last is None or last < earlier[0] else known))
        self._period_s = period
        self._last_width_s = width
        self._seen.extend(((0, first), (1, moment)))
        self._expect(moment)

    def _expect(self, moment: float) -> None:
        assert self._period_s is not None
        between = self._read_s + self._gap_s
        lead = 0.5 * self._read_s + _SLACK_S + self._early_s + self._phase.random() * between
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
            Sample(moment, power, memory_power, clocks.core_mhz, clocks.memory_mhz, temperature, throttled, self._processes)
        )
