"""The run of a job in the processes that do not decide: the first rank does, and they are told."""

from __future__ import annotations

import socket
import time

from wastenot.control.harmless import Harmless
from wastenot.core.errors import StudyError
from wastenot.jobs.plan.decision import Decision
from wastenot.jobs.run.meter import JobMeter
from wastenot.jobs.run.seats import Seats, follow, polls
from wastenot.jobs.run.training_run import TrainingRun, out_of_memory, say
from wastenot.jobs.tables.records import JobTerms, LearningRateScaling, Outcome
from wastenot.jobs.tables.store import JobStore

_FIRST_REPORTS_S = 1800.0  # for which an epoch of the first rank may come later, as long as any default of torch.distributed
_READABLE_S = 60.0  # within which a study that could not be read is expected to be readable again


class FollowingRun:
    """The same run as another process of the job sees it: the first rank decides, and this one is told.

    Attributes are those of :class:`TrainingRun`.
    """

    def __init__(
        self, terms: JobTerms, store: JobStore, seats: Seats, scaling: LearningRateScaling, meter: JobMeter | None
    ) -> None:
        self._store, self._terms, self._scaling, self._meter = store, terms, scaling, meter
        self._run, self.why = follow(store, terms.name, seats)
        self.number, self.batch_size, self.device = self._run.number, self._run.batch_size, self._run.device
        self.default = terms.default
        self._reported = 0
        self._frozen_at: int | None = None  # epochs of the first rank when they had not risen for too long
        self._readable_s = _READABLE_S
        self._unheard = Harmless(consequence="training continues, and this rank may not hear when the first one stops")

    @property
    def outcome(self) -> Outcome:
        """What has become of the run."""
        return self._run.outcome

    @property
    def epochs(self) -> int:
        """Completed so far."""
        return self._run.epochs

    @property
    def decision(self) -> Decision:
        """What was decided for it; what was expected of every batch size, only the first rank knows."""
        return Decision(self.batch_size, self.why)

    learning_rate = TrainingRun.learning_rate

    def iteration(self) -> None:
        """Mark the beginning of an iteration; only the first rank's count."""

    def epoch(self, metric: float | None = None) -> bool:
        """Report an epoch; the first rank's metric decides. Whether to continue, as the first rank was told."""
        goes_on = True
        try:
            goes_on = self._first_goes_on()
            if self._meter is not None:
                if not goes_on:
                    self._meter.end()
                self._tell_energy(self._meter)
        except Exception as error:  # asked again after the next epoch, so that this rank ends with the first
            self._unheard.fail(error)
        return goes_on

    def _first_goes_on(self) -> bool:
        """Wait until the first rank has reported as many epochs as this one; whether it continues."""
        self._reported += 1
        began_s = read_s = time.monotonic()
        for _ in polls():
            try:
                self._run = self._store.run(self._terms.name, self.number)
            except StudyError:  # one that is busy may hold the word that the first rank stops
                if time.monotonic() - read_s < self._readable_s:
                    continue
                self._readable_s = 0.0
                raise
            read_s, self._readable_s = time.monotonic(), _READABLE_S
            if self.epochs > self._reported:  # the first rank has gone on, whatever came then
                return True
            if self.outcome != "running" or self.epochs == self._reported:
                break
            if self.epochs == self._frozen_at:
                break
            if read_s - began_s >= _FIRST_REPORTS_S:
                self._stop_waiting()
                break
        return self.outcome == "running"

    def _stop_waiting(self) -> None:
        """Wait no more until the first rank's epochs rise again."""
        self._frozen_at = self.epochs
        late = f"the first rank has reported no epoch for {_FIRST_REPORTS_S / 60.0:.0f} min"
        say(self._terms.name, f"{late}; this rank continues without waiting for it")

    def _tell_energy(self, meter: JobMeter) -> None:
        """Say what this machine's GPUs have used of the run so far."""
        energy_j = meter.used()[1]
        if energy_j is not None:
            try:
                self._store.used_elsewhere(self._terms.name, self.number, socket.gethostname()[:255], energy_j)
            except StudyError as error:
                say(self._terms.name, f"{error}; training continues")

    def leave(self, error: BaseException | None) -> None:
        """The program leaves the context."""
        Harmless(consequence="the program continues").call(self._leave, error)

    def _leave(self, error: BaseException | None) -> None:
        if self._meter is not None:
            self._meter.end()
            self._tell_energy(self._meter)
        if error is not None and out_of_memory(error):
            self._store.report(self._terms.name, self.number, "no memory")
