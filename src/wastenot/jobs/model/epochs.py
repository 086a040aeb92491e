"""What is learned of the epochs that a job needs by batch size, whatever it runs on."""

from __future__ import annotations

import math

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.jobs.model.curve import Belief, Curve, Roughness, Seen, survival_site
from wastenot.jobs.model.drift import Sight, Watch, after_change
from wastenot.jobs.model.reaching import Reaching
from wastenot.jobs.model.scatter import ordinary, reached_by
from wastenot.jobs.tables.records import Outcome

_ROUNDING = 0.29  # standard deviation of what is rounded to whole epochs
_MOST_BOUNDS = 12  # of a batch size, the greatest, that tell of its runs
_CRITICAL = np.array([-5.0, -3.0, -1.0, 1.0, 3.0, 5.0, 8.0])  # critical batch size, in octaves above the default
_CRITICAL_MEAN, _CRITICAL_SD = 1.0, 2.0  # of these, a priori: a default was chosen to work
_DEFAULT_FAILS = 0.5  # after a change, for all that is known
_STILL_WORKS = 0.3  # of a run: what a batch size that worked before a change still counts for


class Epochs:
    """Learns from runs, on any device, how many epochs each batch size needs and whether it reaches the target.

    A change of the job's data is detected; what was known before is then no more than where the search begins.

    Args:
        octaves: log2 of the batch sizes, ascending.
        default: index of the default among them.

    Attributes:
        reaching: the chance of reaching the target.
        changes: that were detected.
        since: runs that were learned from since the last change, or ever.
    """

    def __init__(self, octaves: FloatArray, default: int) -> None:
        self.reaching = Reaching(octaves, default)
        self.changes = 0
        self._octaves = octaves
        self._curve = _curve(octaves, float(octaves[default]))
        self._watch = Watch(octaves)
        self._belief: Belief | None = None
        self._forget()

    @property
    def reached(self) -> FloatArray:
        """How many runs of each batch size have reached the target since the last change; shape (batch sizes,)."""
        return self._count

    def ended(self, place: int, epochs: int, outcome: Outcome) -> bool:
        """Take note of what became of a run.

        Args:
            place: index of its batch size.
            epochs: that it completed.
            outcome: what became of it.

        Returns:
            Whether the data turn out to have changed.
        """
        if epochs == 0 and outcome != "diverged":
            return False
        sight = Sight(place, epochs, outcome, self.belief(), self.reaching.chance(), bool(self._count[place]))
        since = self._watch.saw(sight)
        if not since:
            self._learn(sight)
            return False
        worked = [int(each) for each in np.flatnonzero(self._count)]
        self.changes += 1
        self._curve = after_change(since[0].belief, self._octaves)
        self.reaching = Reaching(self._octaves, since[0].place, default_fails=_DEFAULT_FAILS)
        for each in worked:
            self.reaching.saw(each, reached=True, weight=_STILL_WORKS)
        self._forget()
        for sight in since:
            self._learn(sight)
        return True

    def belief(self) -> Belief:
        """What is believed of the logarithm of epochs to the target."""
        if self._belief is None:
            count = np.maximum(self._count, 1.0)
            own = 0.0
            if self._count.any():
                own = _ROUNDING / math.exp(self._sum.sum() / self._count.sum())
            sites = self._site_sum / np.where(self._site_precision > 0.0, self._site_precision, 1.0)
            seen = Seen(self._count, self._sum / count, self._squares, self._site_precision, sites)
            self._belief = self._curve.learn(seen, own)
        return self._belief

    def noise(self) -> FloatArray:
        """Variance of log epochs from run to run, which are whole; shape (batch sizes,)."""
        belief = self.belief()
        noise: FloatArray = belief.noise_variance + (_ROUNDING / np.exp(np.maximum(belief.mean, 0.0))) ** 2
        return noise

    def early(self) -> tuple[IndexArray, FloatArray]:
        """Runs that were ended before they reached the target: their batch sizes, and the logarithms of their epochs."""
        places = np.array([place for place, bounds in self._early.items() for _ in bounds], dtype=np.intp)
        return places, np.array([each for bounds in self._early.values() for each in bounds])

    def apart(self) -> tuple[FloatArray, FloatArray]:
        """What would be believed of each batch size but for its own runs that were ended early: mean and variance."""
        belief = self.belief()
        own = np.diagonal(belief.covariance)
        # What was learned of bounds is an approximation, which must not claim more than all there is.
        part = np.minimum(0.95 / own / np.maximum(self._site_precision, 1e-12), 1.0)
        left = 1.0 / (1.0 / own - part * self._site_precision)
        return left * (belief.mean / own - part * self._site_sum), left

    def _forget(self) -> None:
        count = self._octaves.size
        self._count, self._sum, self._squares = np.zeros(count), np.zeros(count), np.zeros(count)
        self._site_precision, self._site_sum = np.zeros(count), np.zeros(count)
        self._early: dict[int, list[float]] = {}
        self.since = 0
        self._belief = None

    def _learn(self, sight: Sight) -> None:
        place = sight.place
        self.since += 1
        if sight.outcome == "reached":
            value = math.log(max(sight.epochs, 1))
            self.reaching.saw(place, reached=True)
            self._count[place] += 1.0
            away = value - self._sum[place] / max(self._count[place] - 1.0, 1.0)
            self._sum[place] += value
            if self._count[place] > 1.0:
                self._squares[place] += away * (value - self._sum[place] / self._count[place])
        elif sight.outcome in ("missed", "diverged"):
            self.reaching.saw(place, reached=False)
        else:
            self._survived(place, sight.epochs)
        self._belief = None

    def _survived(self, place: int, epochs: int) -> None:
        """Take note of a run that needed more epochs than it had."""
        belief, bound = self.belief(), math.log(epochs + 0.5)
        mean, variance = float(belief.mean[place]), float(belief.covariance[place, place])
        noise = float(self.noise()[place])
        z = (bound - mean) / math.sqrt(variance + noise)
        survival = 1.0 - float(reached_by(np.array(z)))
        chance = float(self.reaching.chance()[place])
        would = ordinary(z) * chance * survival / (chance * survival + 1.0 - chance)
        self.reaching.saw_survive(place, survival)
        self._early[place] = sorted([*self._early.get(place, ()), bound])[-_MOST_BOUNDS:]
        precision, centre = survival_site(mean, variance, noise, bound)
        self._site_precision[place] += would * precision
        self._site_sum[place] += would * precision * centre


def _curve(octaves: FloatArray, default: float) -> Curve:
    """Epochs rise in proportion to the batch size above a critical one (McCandlish et al. 2018, equation 2.11)."""
    critical = default + _CRITICAL
    shapes = math.log(2.0) * np.logaddexp2(0.0, octaves[None, :] - critical[:, None])
    return Curve(
        shapes,
        octaves,
        roughness=(Roughness(0.2, 0.03), Roughness(0.5, 0.06), Roughness(0.5, 0.25)),
        noise=(0.02, 0.06, 0.15, 0.3),
        length=3.0,
        likely=np.exp(-0.5 * ((_CRITICAL - _CRITICAL_MEAN) / _CRITICAL_SD) ** 2),
    )
