"""What learning costs beyond running the default batch size each time: so far, and as forecast.

    spent   runs of other batch sizes: what they cost, less a run of the default for each that reached the target
    left    of a budget; a run that may turn out cheaper is only begun where its median cost is left, and stopped there

It may become negative, since cheaper batch sizes pay for further trials (conservative exploration: Wu, Shariff, Lattimore
and Szepesvári 2016).
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.jobs.model.objective import cost
from wastenot.jobs.tables.records import JobRun, JobTerms, Outcome, Speed

if TYPE_CHECKING:
    from wastenot.jobs.plan.learner import Learner

FIRST_RUNS = 10
"""Runs of a job within which most of what can be learned is learned."""

_WORLDS = 16  # that are drawn for a forecast
_MOST_TRIES, _MOST_EPOCHS = 40, 2000  # in each


class LearningCost:
    """What the runs on a device have cost.

    Args:
        terms: of the job.
        device: whose runs count.
    """

    def __init__(self, terms: JobTerms, device: str) -> None:
        self._terms, self._device = terms, device
        self._defaults, self._reached, self._others, self._replaced = 0.0, 0, 0.0, 0

    def ended(self, run: JobRun) -> None:
        """Take note of what a run cost."""
        if run.device != self._device:
            return
        spent, reached = self.cost_of(run), run.outcome == "reached"
        if run.batch_size == self._terms.default:
            self._defaults, self._reached = self._defaults + spent, self._reached + reached
        else:
            self._others, self._replaced = self._others + spent, self._replaced + reached

    def cost_of(self, run: JobRun) -> float:
        """Cost of a run so far."""
        return float(cost(self._terms, run.time_s, run.energy_j or 0.0))

    @property
    def of_default(self) -> float:
        """Cost of reaching the target with the default, runs that failed included; infinite before it has."""
        return self._defaults / self._reached if self._reached and self._defaults > 0.0 else math.inf

    @property
    def spent(self) -> float:
        """What learning has cost, in runs of the default; 0 before one has reached the target."""
        return self._others / self.of_default - self._replaced if math.isfinite(self.of_default) else 0.0

    @property
    def left(self) -> float:
        """Cost that learning may still take; infinite without a budget, and before the default is known."""
        budget, of_default = self._terms.learning_budget, self.of_default
        return math.inf if budget is None or math.isinf(of_default) else (budget - self.spent) * of_default


def learning_forecast(learner: Learner, runs: int) -> tuple[float, float]:
    """The most that learning is expected to have cost at any time in the next runs, in runs of the default.

    Jobs are drawn that fit what is believed, and the policy runs them.

    Args:
        learner: that knows of at least one run that has reached the target.
        runs: to come.

    Returns:
        Mean and 90th percentile.
    """
    rng = np.random.default_rng(11)
    peaks = [_peak(copy.deepcopy(learner), runs, rng) for _ in range(_WORLDS)]
    return float(np.mean(peaks)), float(np.quantile(peaks, 0.9))


def _peak(learner: Learner, runs: int, rng: np.random.Generator) -> float:
    """The most that learning has cost at any time of one drawn job."""
    terms, (log_epochs, scatter, log_cost, chance) = learner.terms, learner.believed()
    typical = _drawn(*log_epochs, rng)
    epoch = np.exp(_drawn(*log_cost, rng))
    works = chance > rng.random()  # those that work lie side by side, so that they fail together
    of_second = float(cost(terms, 1.0, terms.max_power_w or 0.0))
    most = min(terms.max_epochs or _MOST_EPOCHS, _MOST_EPOCHS)
    peak, reached = max(learner.learning.spent, 0.0), 0
    for number in range(10**6, 10**6 + _MOST_TRIES):
        size = learner.choose().batch_size
        place = terms.batch_sizes.index(size)
        needed = math.exp(typical[place] + scatter[place] * rng.standard_normal()) if works[place] else math.inf
        epoch_s = float(epoch[place]) / of_second
        learner.measured(Speed(learner.device, size, terms.settings[0], epoch_s, terms.max_power_w))
        learner.began(_run(learner, number, size, "running", 0, epoch_s))
        epochs = 1
        while (
            epochs + 0.5 < needed
            and epochs < most
            and learner.goes_on(_run(learner, number, size, "running", epochs, epoch_s)).go_on
        ):
            epochs += 1
        outcome: Outcome = "reached" if epochs + 0.5 >= needed else "missed" if epochs >= most else "stopped"
        learner.ended(_run(learner, number, size, outcome, epochs, epoch_s))
        peak, reached = max(peak, learner.learning.spent), reached + (outcome == "reached")
        if reached >= runs:
            break
    return peak


def _run(learner: Learner, number: int, size: int, outcome: Outcome, epochs: int, epoch_s: float) -> JobRun:
    time_s = epochs * epoch_s
    energy_j = time_s * (learner.terms.max_power_w or 0.0)
    return JobRun(number, size, learner.device, outcome, epochs, time_s, energy_j, learner.terms.settings[0])


def _drawn(mean: FloatArray, covariance: FloatArray, rng: np.random.Generator) -> FloatArray:
    return rng.multivariate_normal(mean, 0.5 * (covariance + covariance.T), check_valid="ignore", method="eigh")
