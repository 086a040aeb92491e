"""Tries settings on a running job, a stretch of iterations each, whoever chooses which.

    iterations  ▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮
    setting     first        │ B                 │ C …
                ┊starting┊···│settle┊ stretch ┊··│settle┊ …

Trials begin once the job's iterations are steady. A stretch begins and ends with iterations; the first ones after a change
settle and do not count. A change is requested once the energy of the stretch before is known, which is told from how the
counter moves after it at the same power, or will never be. What one of several GPUs refuses none of them keeps.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from statistics import median_high
from typing import Any

from wastenot.control.blocks import LEAST_ITERATIONS, SKIPPED, UNSTEADY, Stretch, alike, settling_s
from wastenot.control.driver import ClockDriver, Ended, Standing, Subject
from wastenot.control.guard import Guard
from wastenot.control.marker import ITERATION
from wastenot.control.one_setting import one_setting
from wastenot.control.status import Tuning
from wastenot.core.errors import ClocksRefusedError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.planning.switching import switch_time

_LONGEST_WAIT_S = 1.0  # for the energy counter to move twice


class TrialDriver(ClockDriver):
    """Tries settings on the GPUs of a job.

    Args:
        gpus: that the job runs on; all get the same settings, and their energies count together.
        subject: what runs.
        max_slowdown: to keep.
        settings: that may be tried.
        guard: that watches iterations.
        now_s, options: as of :class:`ClockDriver`.

    Attributes:
        iterations: of the job, as far as they were seen to follow each other.

    Raises:
        BadInputError: no GPU is given.
    """

    def __init__(
        self,
        gpus: Sequence[Device],
        subject: Subject,
        max_slowdown: float,
        settings: Sequence[Setting],
        guard: Guard,
        now_s: float,
        **options: Any,
    ) -> None:
        super().__init__(gpus, subject, now_s=now_s, **options)
        self.max_slowdown, self._guard = max_slowdown, guard
        self._switching = switch_time(gpus[0].identity.label)
        self.schedule = one_setting(self._switching, max_slowdown, (), 1.0, 1.0)
        self._settle_s = settling_s(self._switching, settings)
        self.iterations = 0
        self._state = "starting"
        self._iteration: int | None = None
        self._iteration_s: float | None = None
        self._first_times_s: list[float] = []
        self._usual_s = 0.0  # of an iteration
        self._pauses = 0
        self._stretch: Stretch | None = None
        self._ended: Stretch | None = None  # the latest
        self._wanted: Setting | None = None
        self._changed_s = now_s
        self._asked = 0  # how often clocks were requested

    # ---- what a kind of it says ------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether nothing is tried any more."""
        return self._over

    @abstractmethod
    def _begin_trials(self, now_s: float) -> None:
        """Iterations are steady."""

    @abstractmethod
    def _count(self, took_s: float, now_s: float) -> None:
        """An iteration has ended, after those of the start."""

    @abstractmethod
    def _refused(self, setting: Setting, error: ClocksRefusedError) -> None:
        """A setting cannot be set: the GPUs are at the default clocks."""

    @abstractmethod
    def _tuning(self) -> Tuning:
        """What was tried."""

    # ---- iterations ------------------------------------------------------------------------------------------

    def _begin_iteration(self, iteration: int, reached_s: float) -> None:
        before, before_s = self._iteration, self._iteration_s
        self._iteration, self._iteration_s = iteration, reached_s
        if before is None or before_s is None or self.done:
            return
        self.iterations += 1
        took_s = reached_s - before_s
        if iteration != before + 1 or took_s <= 0.0:
            self._missed(reached_s)
        elif self._state == "starting":
            self._start(took_s, reached_s)
        else:
            self._count(took_s, reached_s)

    def _missed(self, now_s: float) -> None:
        """Iterations are missing."""
        if self._stretch is not None:
            self._stretch.spoiled = True

    def _start(self, took_s: float, now_s: float) -> None:
        """Until iterations are steady."""
        self._first_times_s.append(took_s)
        latest = self._first_times_s[SKIPPED:][-LEAST_ITERATIONS:]
        if self._dry_run or len(latest) < LEAST_ITERATIONS:
            return
        if not alike(latest) and self.rehearsed is None and len(self._first_times_s) < UNSTEADY:
            return
        self._usual_s = median_high(latest)
        for earlier_s, later_s in pairwise(latest):
            self._guard.noise.learn(earlier_s, later_s)
        self._begin_trials(now_s)

    def _begin_stretch(self, stretch: Stretch, now_s: float) -> None:
        """Iterations count from now on; those of the stretch so far do not."""
        self._stretch = stretch
        stretch.times_s.clear()
        stretch.begin = [edges.add(now_s) for edges in self._edges]

    def _end_stretch(self, stretch: Stretch, now_s: float) -> None:
        """Its last iteration has ended; the energy until then is known a little later."""
        stretch.end = [edges.add(now_s) for edges in self._edges]
        self._ended = stretch

    @property
    def _period_s(self) -> float:
        """Time between steps of the energy counters."""
        return max(edges.period_s for edges in self._edges)

    # ---- settings --------------------------------------------------------------------------------------------

    @property
    def _energy_due_s(self) -> float:
        """When the energy of the latest stretch is known, or not waited for any more."""
        ended = self._ended
        return self._now_s if ended is None or ended.settled else ended.end[0].moment_s + _LONGEST_WAIT_S

    def _requests_due_s(self) -> float:
        return math.inf if self._wanted is None else self._energy_due_s

    def _learn(self, now_s: float) -> None:
        if self._wanted is not None and self._energy_due_s <= self._now_s:
            self._request_wanted()

    def _request_wanted(self) -> None:
        while self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            if wanted == self._target:
                return
            self._asked += len(self.gpus)
            try:
                for gpu in self.gpus:
                    gpu.clocks.request(wanted)
            except ClocksRefusedError as error:
                if wanted.is_auto:
                    raise
                self._request_default()  # of several some may have taken it
                self._refused(wanted, error)
            else:
                self._target, self._changed_s = wanted, self._now_s

    def _request_default(self) -> None:
        self._wanted = None
        for gpu in self.gpus:
            gpu.clocks.request(AUTO)
        self._target = AUTO

    def _release(self) -> None:
        self._wanted = None
        for gpu in self.gpus:
            gpu.clocks.release()
        self._target = AUTO

    def _give_back(self, ended: Ended) -> Ended:
        self._release()
        return ended

    # ---- what is told ----------------------------------------------------------------------------------------

    def _requests(self) -> int:
        return self._asked

    def _standing(self) -> Standing:
        return Standing(
            max_slowdown=self.max_slowdown,
            iteration=self._iteration,
            marker=None if self._iteration is None else ITERATION,
            at_default=self._target.is_auto,
            tuning=self._tuning(),
        )
