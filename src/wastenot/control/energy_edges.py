"""Energy that a GPU had used at moments of the past, from a counter that moves rarely and is slow to read.

The counter is read after a moment only, until it has moved twice:

    energy                             ┌─── E2         power between the two steps, p = (E2 − E1)/(t2 − t1), is taken to be
                          ┌────────────┘ E1            that since the moment:
    ──────────────────────┘
                    moment t1          t2              energy at the moment = E1 − p·(t1 − moment)

Moments are begins of iterations, so that what p is off by is nearly the same at both ends of a window. A GPU without a
counter has its power readings added up instead, all the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from wastenot.devices.protocol import Device
from wastenot.meters.counter import CounterReader

_USUAL_PERIOD_S = 0.1
_GAP_S = 0.001  # between reads while a step is due
_SAMPLE_S = 0.05  # between readings of power where there is no counter
_LEAD_S = 0.003  # by which reads begin before a step is expected
_DRIFT = 1e-3  # of the time since the last step, by which a step may come earlier than by the period known
_AGREE = 0.2  # of the period, by which steps may differ from it
_GIVE_UP_S = 3.0  # a counter that has not moved for this long says nothing of the moment


@dataclass(slots=True)
class Edge:
    """A moment, and the energy used until then: ``None`` until it is known, NaN where it never will be."""

    moment_s: float
    energy_j: float | None = None


class EnergyEdges:
    """Finds the energy at moments.

    Args:
        device: the GPU.
        now_s: clock of all moments.

    Attributes:
        due_s: when to call :meth:`act` next.
        latest_j: latest reading of the counter; ``None`` before the first.
        read_s: what the latest read took.
    """

    def __init__(self, device: Device, now_s: Callable[[], float]) -> None:
        self._device, self._now_s = device, now_s
        self._delay_s = float(getattr(device.sensors, "energy_delay_s", 0.0))
        self._reader = CounterReader(device, now_s)
        self._waiting: list[Edge] = []
        self._first: tuple[float, float] | None = None  # moment and energy of the first step after the oldest edge
        self._last_step_s = -math.inf
        self._period_s: float | None = None
        self.has_counter: bool | None = None
        self._added_j = 0.0
        self._power: tuple[float, float] | None = None
        self.due_s = math.inf
        self.latest_j: float | None = None
        self._first_j: float | None = None
        self.read_s = 0.0

    @property
    def period_s(self) -> float:
        """Time between steps of the counter, or what is assumed until it is known."""
        return self._period_s or (_SAMPLE_S if self.has_counter is False else _USUAL_PERIOD_S)

    @property
    def used_j(self) -> float | None:
        """Energy used since the first reading; ``None`` before there are two."""
        return None if self.latest_j is None or self._first_j is None else max(self.latest_j - self._first_j, 0.0)

    def look(self) -> None:
        """Read the counter now, if there is one, for the energy used so far."""
        value_j = self._device.sensors.energy_j() if self.has_counter is not False else None
        if value_j is not None:
            self.latest_j = value_j
            self._first_j = value_j if self._first_j is None else self._first_j

    def add(self, moment_s: float) -> Edge:
        """Ask for the energy at a moment that has just passed."""
        edge = Edge(moment_s)
        self._waiting.append(edge)
        if self.due_s == math.inf:
            self.due_s = self._step_after_s(moment_s)
        return edge

    def act(self, now_s: float) -> None:
        """Read what is due."""
        if now_s < self.due_s:
            return
        if self.has_counter is False:
            self._integrate(now_s)
            return
        readable, step = self._reader.read()
        end_s = self._now_s()
        self.read_s = end_s - now_s
        if not readable:
            if self.has_counter is None:
                self.has_counter = False
                self._integrate(now_s)
            else:
                self._drop(end_s)
            return
        self.has_counter = True
        value_j = self._reader.value_j
        self.latest_j = value_j
        self._first_j = value_j if self._first_j is None else self._first_j
        if step is None:
            self.due_s = end_s + _GAP_S
            self._drop(end_s)
            return
        width_s = step.width_s
        if width_s > 2.0 * (_GAP_S + self.read_s) + _LEAD_S:
            self.due_s = end_s + _GAP_S  # it moved at some time since an earlier moment: wait for the next step
            return
        self._step(step.moment_s - self._delay_s, step.energy_j, end_s)

    def _step(self, moment_s: float, energy_j: float, end_s: float) -> None:
        since_s = moment_s - self._last_step_s
        if self._first is not None and since_s > 0.0:
            passed = 1 if self._period_s is None else max(round(since_s / self._period_s), 1)
            period_s = since_s / passed
            if self._period_s is None or abs(period_s - self._period_s) < _AGREE * self._period_s:
                self._period_s = period_s if self._period_s is None else 0.7 * self._period_s + 0.3 * period_s
        self._last_step_s = moment_s
        if self._first is None:
            if self._waiting and moment_s >= self._waiting[0].moment_s:
                self._first = (moment_s, energy_j)
        else:
            first_s, first_j = self._first
            power_w = (energy_j - first_j) / (moment_s - first_s)
            known = [edge for edge in self._waiting if edge.moment_s <= first_s]
            for edge in known:
                edge.energy_j = first_j - power_w * (first_s - edge.moment_s)
            self._waiting = self._waiting[len(known) :]
            self._first = (moment_s, energy_j) if self._waiting and moment_s >= self._waiting[0].moment_s else None
        self.due_s = self._next_s(end_s) if self._waiting else math.inf

    def _step_after_s(self, moment_s: float) -> float:
        """When to read first for a moment: shortly before the counter will move next, where that is known."""
        since_s = moment_s - self._last_step_s
        if self._period_s is None or _DRIFT * since_s > _LEAD_S:
            return moment_s
        steps = math.ceil(since_s / self._period_s)
        lead_s = _LEAD_S + self.read_s + _DRIFT * since_s
        return max(moment_s, self._last_step_s + self._delay_s + steps * self._period_s - lead_s)

    def _next_s(self, now_s: float) -> float:
        if self._period_s is None:
            return now_s + _GAP_S
        lead_s = _LEAD_S + self.read_s
        return max(now_s + _GAP_S, self._last_step_s + self._delay_s + self._period_s - lead_s)

    def _drop(self, now_s: float) -> None:
        """Give up moments that are too long ago."""
        while self._waiting and now_s - self._waiting[0].moment_s > _GIVE_UP_S:
            self._waiting.pop(0).energy_j = math.nan
            self._first = None
        if not self._waiting:
            self.due_s = math.inf
        elif self.due_s <= now_s:
            self.due_s = now_s + _GAP_S

    def _integrate(self, now_s: float) -> None:
        """Add up readings of power."""
        power_w = self._device.sensors.power_w()
        self.due_s = now_s + _SAMPLE_S
        if power_w is None:
            for edge in self._waiting:
                edge.energy_j = math.nan
            self._waiting.clear()
            return
        if self._power is not None:
            before_s, before_w = self._power
            mean_w = 0.5 * (before_w + power_w)
            for edge in self._waiting:
                edge.energy_j = self._added_j + mean_w * max(edge.moment_s - before_s, 0.0)
            self._added_j += mean_w * (now_s - before_s)
            self._waiting.clear()
            self.latest_j, self._first_j = self._added_j, 0.0
        self._power = (now_s, power_w)
