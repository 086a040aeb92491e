"""One simulated run of a job: epochs at the speed of a trace, until its target or its policy ends it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

import numpy as np

from wastenot.core.setting import Setting
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.plan.decision import Policy
from wastenot.jobs.tables.records import JobRun, Outcome


class Pace(Protocol):
    """How fast a run trains, and at which setting."""

    def begin(self) -> None:
        """A run begins."""

    def beside(self) -> Pace:
        """For another run at the same time, with which this one shares what is known."""

    def epoch(self, batch_size: int) -> tuple[float, float]:
        """Time and energy of the next epoch of the run in flight."""

    def setting(self, batch_size: int) -> int:
        """Index of the setting that a batch size holds."""


class SimulatedRun:
    """A run in flight, one epoch at a time.

    Args:
        trace: of the job.
        policy: that is told of it, and says whether it continues.
        number: of the run, from 1.
        batch_size: that it runs with.
        drawn: draws how many epochs it needs.
        pace: how fast it trains.
        started_unix_s: when it began.

    Attributes:
        run: what is known of it.
    """

    def __init__(
        self,
        trace: JobTrace,
        policy: Policy,
        number: int,
        batch_size: int,
        drawn: np.random.Generator,
        pace: Pace,
        *,
        started_unix_s: float = 0.0,
    ) -> None:
        self._trace, self._policy, self._pace = trace, policy, pace
        needed = trace.epochs[batch_size]
        self._needed = needed[int(drawn.integers(len(needed)))]
        most = trace.terms.max_epochs
        self._most = math.inf if most is None else most
        self._epoch = 0.0, 0.0
        pace.begin()
        self.run = JobRun(
            number, batch_size, trace.device, "running", 0, 0.0, 0.0, self._setting(batch_size), None, started_unix_s
        )
        policy.began(self.run)

    def begin_epoch(self) -> float:
        """Train for an epoch; how long it takes."""
        self._epoch = self._pace.epoch(self.run.batch_size)
        return self._epoch[0]

    def end_epoch(self) -> bool:
        """Whether the run is in flight still."""
        run, (time_s, energy_j) = self.run, self._epoch
        self.run = run = replace(
            run, epochs=run.epochs + 1, time_s=run.time_s + time_s, energy_j=(run.energy_j or 0.0) + energy_j,
            setting=self._setting(run.batch_size),
        )  # fmt: skip
        outcome: Outcome
        if run.epochs >= self._needed:
            outcome = "reached"
        elif run.epochs >= self._most:
            outcome = "missed"
        elif not self._policy.goes_on(run).go_on:
            outcome = "stopped"
        else:
            return True
        self.run = replace(run, outcome=outcome, setting=self._setting(run.batch_size))
        self._policy.ended(self.run)
        return False

    def to_its_end(self) -> JobRun:
        """Train until it ends."""
        self.begin_epoch()
        while self.end_epoch():
            self.begin_epoch()
        return self.run

    def _setting(self, batch_size: int) -> Setting:
        """That is held now."""
        return self._trace.terms.settings[self._pace.setting(batch_size)]
