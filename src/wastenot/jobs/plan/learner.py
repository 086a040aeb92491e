"""The policy of a job: learns what each batch size costs, and decides.

Epochs to the target depend on the batch size and not on the setting (Zeus, NSDI 2023, section 3.3); time and power of an
epoch depend on both, and are known as soon as they were measured.
"""

from __future__ import annotations

import math

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray
from wastenot.core.setting import Setting
from wastenot.jobs.model.epoch_costs import EpochCosts
from wastenot.jobs.model.epochs import Epochs
from wastenot.jobs.plan.choice import Prospect, Worth, stop_after, worth
from wastenot.jobs.plan.decision import Decision, Outlook, Verdict
from wastenot.jobs.plan.learning_cost import LearningCost
from wastenot.jobs.tables.records import JobRun, JobTerms, Speed

_LEAST_RECURRENCES = 100.0
"""That are expected of a job at first; later, as many as there were (Lindy's law)."""

_PATIENCE = 3
"""Runs in a row without the target, after which only batch sizes are run that have reached it, and are given more time."""

_AT_LEAST = 1.5  # times its expected epochs, which a run has where one has reached the target before
_PAYS_WITHIN = 4.0
"""Runs, for each in flight, within which one that explores beside another must pay: by then, the other will have told."""

_RELIABLE = "the cheapest that has reached the target, after runs that did not"


class Learner:
    """Learns from the runs of a job on a device, and decides.

    Args:
        terms: of the job.
        device: that runs are to be decided for.

    Attributes:
        changed_at: numbers of the runs with which the job's data turned out to have changed.
        learning: what it has cost.
    """

    def __init__(self, terms: JobTerms, device: str) -> None:
        self.terms, self.device = terms, device
        self._sizes = terms.batch_sizes
        self._place = {size: place for place, size in enumerate(self._sizes)}
        octaves: FloatArray = np.log2(np.array(self._sizes, dtype=np.float64))
        count = octaves.size
        self._epochs, self._costs = Epochs(octaves, self._place[terms.default]), EpochCosts(terms, device)
        self._runs = np.zeros(count)
        self._fits = np.ones(count, dtype=bool)
        self._pending: dict[int, int] = {}
        self._stop_after: dict[int, int] = {}
        self._prospects: dict[tuple[int, ...], Prospect] = {}  # by the runs in flight, as long as nothing is learned
        self.changed_at: tuple[int, ...] = ()
        self._told: list[int] = []  # numbers of the runs that say something of epochs
        self._in_vain = 0  # runs in a row that did not reach the target
        self._known_since = 0.0  # runs before the last change
        self.learning = LearningCost(terms, device)

    def measured(self, speed: Speed) -> None:
        """Take note of how fast the job runs at a batch size and setting."""
        self._costs.measured(speed)
        self._learned()

    def choose(self) -> Decision:
        """The batch size for a run that begins now."""
        default = self.terms.default
        if not self._epochs.reached.any() and self._runs[self._place[default]] == 0.0 and self._fits[self._place[default]]:
            return Decision(default, "the default size, which has not been run yet")
        if not self._costs.known:
            return Decision(default, "nothing is known about any other")
        prospect = self._prospect()
        found = worth(prospect, self._recurrences())
        open_to = self._fits
        if self._pending and self._epochs.reached.any():
            found, open_to = self._beside(prospect, found)
        if self.terms.learning_budget is not None:
            open_to = open_to & self._affordable(prospect)
        total = np.where(open_to, found.total, math.inf)
        place = int(total.argmin())
        while total[place] < 0.0 and self._tells_nothing_new(place, prospect):
            total[place] = math.inf
            place = int(total.argmin())
        if total[place] >= 0.0:
            place = int(np.where(open_to, found.cost, math.inf).argmin())
        if self._in_vain >= _PATIENCE and self._epochs.reached.any():
            place = int(np.where(self._fits & (self._epochs.reached > 0.0), found.cost, math.inf).argmin())
            return Decision(self._sizes[place], _RELIABLE, self._outlook(prospect))
        return Decision(self._sizes[place], self._why(place, found), self._outlook(prospect))

    def _why(self, place: int, found: Worth) -> str:
        """Why a batch size is chosen, by what has been run: what is only inferred is never called known."""
        there = self._fits & (self._epochs.reached > 0.0)
        if not there.any():
            since = " since the data changed" if self.changed_at else " yet"
            return f"the most promising, as no run has reached the target{since}"
        known = int(np.where(there, found.cost, math.inf).argmin())
        if place == known:
            return "the cheapest known" if place == found.cheapest else "the cheapest that has reached the target"
        may = "is expected to be" if place == found.cheapest else "may turn out"
        return f"{may} cheaper than {self._sizes[known]}"

    def began(self, run: JobRun) -> None:
        """Take note of a run that is in flight from now on."""
        self._pending[run.number] = self._place[run.batch_size]

    def goes_on(self, run: JobRun) -> Verdict:
        """Whether a run in flight continues after an epoch that did not reach the target."""
        place = self._place[run.batch_size]
        if self.terms.learning_budget is not None and not self._no_dearer(self._prospect())[place]:
            of_epoch = float(self._prospect().epoch_cost[place])
            if self.learning.cost_of(run) + of_epoch > self.learning.left:
                return Verdict(go_on=False, why="another epoch would exceed the learning budget")
        bound = self._stop_after.get(run.number)
        if bound is None:
            if run.epochs < self._at_least(place):
                return Verdict(go_on=True)  # most runs end before it matters what is left of them
            bound = self._stop_after[run.number] = self._bound(run)
        return Verdict(run.epochs < bound, "starting over is expected to cost less than what is left")

    def ended(self, run: JobRun) -> None:
        """Take note of what became of a run."""
        self._pending.pop(run.number, None)
        self.learning.ended(run)
        place = self._place[run.batch_size]
        self._runs[place] += 1.0
        self._in_vain = 0 if run.outcome == "reached" else self._in_vain + 1
        if run.outcome == "no memory":
            if run.device == self.device:
                self._fits[place:] = False
            self._learned()
            return
        if run.epochs > 0 or run.outcome == "diverged":
            self._told.append(run.number)
        if self._epochs.ended(place, run.epochs, run.outcome):
            self._in_vain = 0  # and the change was why
            self._known_since = float(self._runs.sum())
            self.changed_at = (*self.changed_at, self._told[-self._epochs.since])
        self._learned()

    def setting(self, batch_size: int) -> Setting | None:
        """The best known setting for a batch size; ``None`` where none was measured on the device."""
        return self._costs.setting(batch_size)

    def believed(self) -> tuple[tuple[FloatArray, FloatArray], FloatArray, tuple[FloatArray, FloatArray], FloatArray]:
        """Log epochs to the target (mean, covariance), their scatter, log cost of an epoch, and the chance of the target."""
        epochs, costs, chance = self._epochs.belief(), self._costs.belief(), self._epochs.reaching.chance()
        return (
            (epochs.mean, epochs.covariance),
            np.sqrt(self._epochs.noise()),
            (costs.mean, costs.covariance),
            np.where(self._fits, chance, 0.0),
        )

    def _no_dearer(self, prospect: Prospect) -> BoolArray:
        """Batch sizes that have reached the target and are expected to cost no more than the default, and the default."""
        expected = np.exp(prospect.log_cost + 0.5 * prospect.noise)
        found: BoolArray = (self._epochs.reached > 0.0) & (expected <= self.learning.of_default)
        found[self._place[self.terms.default]] = True
        return found

    def _affordable(self, prospect: Prospect) -> BoolArray:
        """Batch sizes that the learning budget allows, which one run explores at a time."""
        known = self._no_dearer(prospect)
        if not known[list(self._pending.values())].all():
            return known
        return known | (np.exp(np.minimum(prospect.log_cost, 600.0)) <= self.learning.left)

    def _tells_nothing_new(self, place: int, prospect: Prospect) -> bool:
        """Whether a run would be stopped no later than another of its batch size was, which has never reached the target."""
        places, log_epochs = self._epochs.early()
        longest = np.exp(log_epochs[places == place]).max(initial=0.0)
        if longest == 0.0 or self._epochs.reached[place] > 0.0:
            return False
        return bool(stop_after(prospect, place, self._recurrences()) <= longest)

    def _beside(self, prospect: Prospect, found: Worth) -> tuple[Worth, BoolArray]:
        """What runs are worth beside those in flight, and the batch sizes that are open to another run.

        A batch size that may not reach the target at all is not tried again before its first run has told.
        """
        flying = set(self._pending.values())
        cheapest = int(np.where(self._fits, found.cost, math.inf).argmin())
        if flying != {cheapest}:  # one explores
            found = worth(prospect, min(self._recurrences(), _PAYS_WITHIN * (1 + len(self._pending))))
        open_to = self._fits.copy()
        open_to[[place for place in flying if self._epochs.reached[place] == 0.0]] = False
        return found, open_to if open_to.any() else self._fits

    def _prospect(self, but: int | None = None) -> Prospect:
        """What is believed, as if all runs in flight but one had ended as expected."""
        flying = tuple(number for number in self._pending if number != but)
        if flying not in self._prospects:
            self._prospects[flying] = self._believed(flying)
        return self._prospects[flying]

    def _believed(self, flying: tuple[int, ...]) -> Prospect:
        epochs, costs = self._epochs.belief(), self._costs.belief()
        covariance = epochs.covariance + costs.covariance
        noise = self._epochs.noise()
        for place in (self._pending[number] for number in flying):
            column = covariance[:, place]
            covariance = covariance - np.outer(column, column) / (column[place] + noise[place])
        bound = self.terms.max_epochs
        after = self._epochs.reaching.chance_after()
        chance = self._epochs.reaching.chance()
        if not self._fits.all():
            chance = np.where(self._fits, chance, 1e-3)
            after = np.where(self._fits, after, 1e-3)
        early, log_epochs = self._epochs.early()
        apart, variance = self._epochs.apart()
        return Prospect(
            np.maximum(epochs.mean, 0.0) + costs.mean,  # a run takes one epoch at least
            covariance,
            noise,
            chance,
            after,
            np.exp(costs.mean + 0.5 * np.diagonal(costs.covariance)),
            early,
            log_epochs + costs.mean[early],
            np.stack((apart + costs.mean, variance + np.diagonal(costs.covariance))),
            math.inf if bound is None else float(bound),
        )

    def _outlook(self, prospect: Prospect) -> tuple[Outlook, ...]:
        spread = np.sqrt(np.diagonal(prospect.covariance))
        epochs = np.maximum(self._epochs.belief().mean, 0.0)  # a run takes one at least
        return tuple(
            Outlook(
                size,
                float(np.exp(prospect.log_cost[place] + 0.5 * prospect.noise[place])),
                float(np.exp(prospect.log_cost[place] - 1.96 * spread[place])),
                float(np.exp(prospect.log_cost[place] + 1.96 * spread[place])),
                float(prospect.chance[place]),
                int(self._runs[place]),
                float(np.exp(epochs[place])),
            )
            for place, size in enumerate(self._sizes)
            if self._fits[place]
        )

    def _bound(self, run: JobRun) -> int:
        """Epochs after which a run that begins now is stopped."""
        most = math.inf if self.terms.max_epochs is None else self.terms.max_epochs
        if not self._epochs.reached.any() and not self._epochs.changes:
            return int(min(most, 1 << 60))  # no batch size is known to reach the target
        place = self._place[run.batch_size]
        epochs = stop_after(self._prospect(but=run.number), place, self._recurrences())
        epochs = max(epochs, self._at_least(place))
        return int(min(most, epochs << max(self._in_vain - _PATIENCE + 1, 0)))

    def _learned(self) -> None:
        self._stop_after.clear()
        self._prospects.clear()

    def _at_least(self, place: int) -> int:
        """Epochs that any run of a batch size is given."""
        if self._epochs.reached[place] == 0.0:
            return 0
        # One that is known to get there is given time, or else nothing would be learned of its slow runs.
        return math.ceil(_AT_LEAST * math.exp(self._epochs.belief().mean[place]))

    def _recurrences(self) -> float:
        """That are expected to come."""
        return max(_LEAST_RECURRENCES, float(self._runs.sum()) - self._known_since)
