"""What sets the clocks of GPUs while a program runs on them, whoever decides which: one loop, one status, one end.

    program ── mark(marker) ──▶ ┌────────┐ ── requests of clocks ──▶ GPUs
    clock ──── act(now_s) ────▶ │ driver │ ◀── energy, power, … ────
                                └────────┘ ──▶ status(), end()

It knows no thread, no socket and no clock of its own: whoever drives it (:class:`wastenot.control.session.Session`) calls
:meth:`ClockDriver.mark` with what the program has reached, and :meth:`ClockDriver.act` when :meth:`ClockDriver.due_s` says
so, from one thread at a time. A kind of driver says what follows from a marker, what it requests, and how it gives the
clocks back.
"""

from __future__ import annotations

import math
import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, Protocol

from wastenot.control.energy_edges import EnergyEdges
from wastenot.control.marker import ITERATION, Marker
from wastenot.control.obeyed import Obeyed
from wastenot.control.proxy_error import learn, learned
from wastenot.control.rehearsed import Rehearsed
from wastenot.control.status import (
    NOTHING_PROVED,
    Event,
    GpuStatus,
    Instant,
    Moment,
    PipelineStatus,
    Proof,
    Proxy,
    Status,
    Summary,
    Tuning,
)
from wastenot.control.time_line import TimeLine
from wastenot.control.traffic import Traffic, Units
from wastenot.core.errors import BadInputError
from wastenot.core.origin import Origin
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.pages.formatting import percent

Ended = Literal["job ended", "stopped", "refused", "failed"]
Kind = Literal["started", "stepped", "drift", "refused", "stopped", "ended", "note"]

_EVENTS = 100  # kept
_READ = ("power_w", "temperature_c", "core_mhz", "memory_mhz")  # of a GPU, from time to time


@dataclass(frozen=True, slots=True)
class Subject:
    """What is applied.

    Attributes:
        plan: path of the plan, or what is applied instead.
        digest: of the plan.
        workload: of the plan.
        origin: of the numbers that the run will give.
    """

    plan: str
    digest: str
    workload: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a driver stands, as its status tells it; see :class:`wastenot.control.status.Status`."""

    max_slowdown: float
    iteration: int | None
    marker: str | None
    at_default: bool
    rung: int = 0
    rungs: int = 1
    predicted_time_change: float = 0.0
    predicted_energy_change: float = 0.0
    proof: Proof = NOTHING_PROVED
    tuning: Tuning | None = None
    pipeline: PipelineStatus | None = None


class Driver(Protocol):
    """What a session drives: a :class:`ClockDriver`, or one that only shows what another does."""

    @property
    def gpus(self) -> Sequence[Device]:
        """The GPUs, in the order that markers count them."""

    def mark(self, marker: Marker) -> None:
        """Take note of what the program has reached."""

    def due_s(self) -> float | None:
        """The next moment at which to act; ``None`` for none."""

    def act(self, now_s: float) -> None:
        """Do what is due."""

    def status(self) -> Status:
        """What is known now."""

    def hold(self, now_s: float) -> None:
        """Go by no iterations, as none are expected any more."""

    def refuse(self, why: str, now_s: float) -> None:
        """Go back to the default clocks for good."""

    def end(self, now_s: float | None = None, *, ended: Ended = "job ended", exit_code: int | None = None) -> Summary:
        """Give the clocks back."""


class ClockDriver(ABC):
    """Sets clocks while a program runs.

    Args:
        gpus: that the program runs on, in the order that markers count them.
        subject: what is applied.
        now_s: moment at which it begins, on the clock of the first GPU, which all moments are of.
        dry_run: change no clocks.
        rehearsed: what takes note of a program that the GPUs do not run, as they are simulated.
        traffic: of the GPUs, by which a program is followed that reports no iterations; ``None`` not to.
        before: what has followed the program until now, and told of it.

    Raises:
        BadInputError: no GPU is given.
    """

    sensors_each_s: ClassVar[float] = 1.0
    """Between readings for the status."""

    def __init__(
        self,
        gpus: Sequence[Device],
        subject: Subject,
        *,
        now_s: float = 0.0,
        dry_run: bool = False,
        rehearsed: Rehearsed | None = None,
        traffic: Traffic | None = None,
        before: ClockDriver | None = None,
    ) -> None:
        if not gpus:
            raise BadInputError("`gpus`: name at least one GPU")
        self.gpus, self.subject, self.rehearsed = tuple(gpus), subject, rehearsed
        self._began_s = self._now_s = now_s
        self._process, self._started_unix_s = os.getpid(), time.time()
        self._dry_run = dry_run
        self._edges = [EnergyEdges(gpu, gpu.time.now_s) for gpu in gpus]
        self._readings: list[dict[str, float | None]] = [dict.fromkeys(_READ) for _ in gpus]
        self._obeyed = [Obeyed() for _ in gpus]
        self._sensors_due_s = now_s
        self._line = TimeLine(now_s)
        self._events: deque[Event] = deque(maxlen=_EVENTS)
        self._over = False
        self._target: Setting = AUTO
        self.traffic = traffic
        self.units: Units | None = None
        self.proxy: Proxy | None = None
        if before is not None:
            self._began_s, self._started_unix_s, self._events = before._began_s, before._started_unix_s, before._events
            self.traffic, self.units, self.proxy = before.traffic, before.units, before.proxy

    # ---- what a kind of driver says --------------------------------------------------------------------------

    @abstractmethod
    def _mark(self, marker: Marker) -> None:
        """Take note of what the program has reached, by itself or by its traffic."""

    @abstractmethod
    def hold(self, now_s: float) -> None:
        """Go by no iterations, as none are expected any more."""

    @abstractmethod
    def refuse(self, why: str, now_s: float) -> None:
        """Go back to the default clocks for good."""

    @abstractmethod
    def _standing(self) -> Standing:
        """Where it stands."""

    @abstractmethod
    def _give_back(self, ended: Ended) -> Ended:
        """Give the clocks back, at the end; why it ended."""

    def _unguarded(self, why: str, now_s: float) -> None:  # noqa: B027
        """Nothing shows progress."""

    def _restrict(self) -> None:  # noqa: B027
        """Keep the slowdown by as much more strictly as the proxy may be off; not at all without one."""

    def _start_over(self, now_s: float) -> None:  # noqa: B027
        """At the default clocks, as what was seen so far is not what runs."""

    def _requests_due_s(self) -> float:
        """When to request something next."""
        return math.inf

    def _request(self, now_s: float) -> float:
        """Request what is due; the moment of the next request, where that is known."""
        return math.inf

    def _learn(self, now_s: float) -> None:  # noqa: B027  # a kind that learns nothing from energies
        """Energies have been read up to now: what follows from them."""

    def _target_of(self, gpu: int) -> Setting:
        """What was requested last of a GPU."""
        return self._target

    def _requests(self) -> int:
        """How often clocks were requested."""
        return 0

    # ---- what drives it --------------------------------------------------------------------------------------

    def mark(self, marker: Marker) -> None:
        """Take note of what the program has reached."""
        self._hooked(marker.reached_s)
        self._mark(marker)

    def mark_unit(self, count: int, moment_s: float) -> None:
        """So many units of traffic have ended, the last one at a moment."""
        self._mark(Marker(ITERATION, count, moment_s))

    def due_s(self) -> float | None:
        """The next moment at which :meth:`act` has something to do; ``None`` for none."""
        if self._over:
            return None
        traffic_s = math.inf if self.traffic is None else max(self.traffic.due_s, self._began_s)
        edges_s = (edges.due_s for edges in self._edges)
        return min(self._requests_due_s(), self._sensors_due_s, self._line.due_s, traffic_s, *edges_s)

    def act(self, now_s: float) -> None:
        """Do what is due: requests first, as they must not wait for sensors."""
        if self._over:
            return
        self._now_s = max(self._now_s, now_s)
        next_s = self._request(now_s)
        for edges in self._edges:
            if edges.due_s <= now_s and next_s > now_s + 1.5 * edges.read_s:
                edges.act(now_s)
        self._learn(now_s)
        idle = next_s > now_s + 2.0 * max(edges.read_s for edges in self._edges)
        if self.traffic is not None and self.traffic.due_s <= now_s and idle:
            self._follow(self.traffic, now_s)
        if now_s >= self._sensors_due_s and idle:
            self._read_sensors(now_s)
        if now_s >= self._line.due_s:
            self._line.add(now_s, self._moment(now_s))

    def status(self) -> Status:
        """What is known now."""
        standing = self._standing()
        return Status(
            origin=self.subject.origin,
            plan=self.subject.plan,
            plan_digest=self.subject.digest,
            workload=self.subject.workload,
            process=self._process,
            started_unix_s=self._started_unix_s,
            elapsed_s=self._now_s - self._began_s,
            dry_run=self._dry_run,
            gpus=tuple(self._gpu_status(index) for index in range(len(self.gpus))),
            events=tuple(self._events),
            rehearsal=None if self.rehearsed is None else self.rehearsed.so_far(self._requests()),
            proxy=None if self.proxy is None or self.units is None else self.proxy.at(self.units.unit_s),
            proxy_error=None if self.traffic is None else self.traffic.error(),
            **{each.name: getattr(standing, each.name) for each in fields(standing)},
        )

    def end(self, now_s: float | None = None, *, ended: Ended = "job ended", exit_code: int | None = None) -> Summary:
        """Give the clocks back, and say what became of it.

        Args:
            now_s: when it ended.
            ended: why; a plan that was refused stays refused.
            exit_code: of the job.
        """
        self._now_s = max(self._now_s, self._now_s if now_s is None else now_s)
        if not self._over:
            stopped = ended == "stopped"
            ended = self._give_back(ended)
            self._tell("stopped" if stopped else "ended", "the clocks are reset")
            self._over = True
            error = None if self.traffic is None else self.traffic.error()
            if error is not None:
                learn(self.gpus[0].identity, error)
        return Summary(
            status=self.status(), ended=ended, exit_code=exit_code, time_line=self._line.moments(), close_up=self._instants()
        )

    # ---- by proxy --------------------------------------------------------------------------------------------

    def _by_proxy(self, max_slowdown: float, now_s: float, why: str = "") -> None:
        """Follow the program by its traffic from now on, unless that may not be, with ``why``, or cannot be."""
        why = why or self._why_no_proxy(max_slowdown)
        if why or self.traffic is None:
            self._unguarded(why, now_s)
            return
        self.units = Units(self.traffic, now_s)
        self.traffic.learns = False
        self._restrict()
        self._tell("note", "no iterations were reported: progress is followed by memory traffic, as a proxy")

    def _why_no_proxy(self, max_slowdown: float) -> str:
        """Why a slowdown cannot be kept by traffic; empty where it can, and then how far that may be off is known."""
        if self.traffic is None or not self.traffic.known:
            return "the GPU reports no memory traffic, as NVIDIA's do from Hopper on"
        self.proxy = learned(self.gpus[0].identity)
        if self.proxy.error < math.log1p(max_slowdown):
            return ""
        allowed = f"{percent(max_slowdown, 1)} of slowdown" if max_slowdown > 0.0 else "no slowdown"
        known = f"by {self.proxy.jobs} jobs" if self.proxy.jobs else "which is assumed"
        off = f"progress by memory traffic may be off by {percent(self.proxy.error, 1)} ({known})"
        return f"{off}, and {allowed} is allowed"

    def _follow(self, traffic: Traffic, now_s: float) -> None:
        """Take a sample of the traffic, and what follows from it."""
        traffic.act(now_s)
        units = self.units
        if units is None:
            return
        count = units.count
        for place, moment_s in enumerate(units.look(now_s), start=1):
            self.mark_unit(count + place, moment_s)
        if units.failed:
            self.units = None
            self._unguarded(units.failed, now_s)
        elif units.other:
            self._tell("drift", "its memory traffic is nothing like it was: a unit of it is chosen again")
            self.units = Units(traffic, now_s)
            self._start_over(now_s)

    def _hooked(self, now_s: float) -> None:
        """Iterations are reported after all: they are what counts from now on."""
        if self.units is not None and self.traffic is not None:
            self.units = self.proxy = None
            self.traffic.learns = True
            self._start_over(now_s)
            self._tell("note", "iterations are reported now, and followed instead of memory traffic")

    # ---- what is told ----------------------------------------------------------------------------------------

    def _tell(self, kind: Kind, text: str) -> None:
        self._events.append(Event(at_s=self._now_s - self._began_s, kind=kind, text=text))

    def _read_sensors(self, now_s: float) -> None:
        self._sensors_due_s = now_s + self.sensors_each_s
        for index, sensors in enumerate(gpu.sensors for gpu in self.gpus):
            clocks = sensors.clocks()
            read = (sensors.power_w(), sensors.temperature_c(), clocks.core_mhz, clocks.memory_mhz)
            self._readings[index] = dict(zip(_READ, read, strict=True))
            if self.rehearsed is None and not self._dry_run:
                told = self._obeyed[index].look(now_s, self._target_of(index).core_mhz, clocks.core_mhz)
                if told is not None:
                    self._tell("note", f"{self.gpus[index].identity.name}: {told}")

    def _moment(self, now_s: float) -> Moment:
        sensors, target = self.gpus[0].sensors, self._target_of(0)
        return Moment(
            at_s=now_s - self._began_s,
            power_w=sensors.power_w(),
            core_mhz=sensors.clocks().core_mhz,
            target_core_mhz=target.core_mhz,
            marker=ITERATION,
            at_default=target.is_auto,
            rung=0,
            saved_j=None,
        )

    def _instants(self) -> tuple[Instant, ...]:
        """The latest iterations close up."""
        return ()

    def _gpu_status(self, index: int) -> GpuStatus:
        identity, target = self.gpus[index].identity, self._target_of(index)
        return GpuStatus(
            device=identity.name,
            model=identity.model,
            unique_id=identity.unique_id,
            target_core_mhz=target.core_mhz,
            target_memory_mhz=target.memory_mhz,
            target_power_limit_w=target.power_limit_w,
            target_profile=target.profile,
            energy_j=self._edges[index].used_j if self.rehearsed is None else None,  # which is of no program
            **self._readings[index],
        )
