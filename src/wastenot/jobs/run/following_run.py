"""The run of a job in the processes that do not decide: the first rank does, and they are told."""

from __future__ import annotations

from wastenot.core.errors import StudyError
from wastenot.jobs.run.meter import JobMeter
from wastenot.jobs.run.seats import Seats, follow
from wastenot.jobs.run.training_run import TrainingRun, out_of_memory, say
from wastenot.jobs.tables.records import JobTerms, LearningRateScaling, Outcome
from wastenot.jobs.tables.store import JobStore


class FollowingRun:
    """The same run as another process of the job sees it: the first rank decides, and this one is told.

    Attributes are those of :class:`TrainingRun`.
    """

    def __init__(
        self, terms: JobTerms, store: JobStore, seats: Seats, scaling: LearningRateScaling, meter: JobMeter | None
    ) -> None:
        self._meter = meter
        self._followed = follow(store, terms.name, seats)
        run = self._followed.run
        self._terms, self._scaling = terms, scaling
        self.number, self.batch_size, self.device, self.why = run.number, run.batch_size, run.device, self._followed.why
        self.default = terms.default

    @property
    def outcome(self) -> Outcome:
        """What has become of the run."""
        return self._followed.run.outcome

    @property
    def epochs(self) -> int:
        """Completed so far."""
        return self._followed.run.epochs

    learning_rate = TrainingRun.learning_rate

    def epoch(self, metric: float | None = None) -> bool:
        """Report an epoch; the first rank's metric decides.

        Returns:
            Whether to go on, as the first rank was told.
        """
        goes_on = self._followed.epoch()
        if self._meter is not None:
            if not goes_on:
                self._meter.end()
            self._tell_energy(self._meter)
        return goes_on

    def _tell_energy(self, meter: JobMeter) -> None:
        energy_j = meter.used()[1]
        if energy_j is not None:
            try:
                self._followed.used(energy_j)
            except StudyError as error:
                say(self._terms.name, f"{error}; training goes on")

    def leave(self, error: BaseException | None) -> None:
        """The program leaves the context."""
        if self._meter is not None:
            self._meter.end()
            self._tell_energy(self._meter)
        if error is not None and out_of_memory(error):
            self._followed.report("no memory")
