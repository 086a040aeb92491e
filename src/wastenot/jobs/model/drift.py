"""Whether the data of a job have changed, so that batch sizes need other numbers of epochs than they did.

    runs      …  ●  ●  ●  ●  │  ○  ○  ○            as believed before, or with a curve of epochs that has moved since │?
    evidence                 └── of a change here, beside that of none (Adams and MacKay, "Bayesian Online Changepoint
                                 Detection", 2007)

Runs scatter more than a normal distribution says, so that one of them alone hardly ever tells of a change.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.jobs.model.curve import Belief, Curve, Roughness
from wastenot.jobs.model.scatter import chance_below, chances_below
from wastenot.jobs.model.transfer import shifted_shapes
from wastenot.jobs.tables.records import Outcome

_CHANGES_EACH = 100.0
"""Runs between changes, a priori."""

_ODDS = 5.0  # of a change, from which on it is believed
_WINDOW = 12  # runs that a change may lie behind when it is seen
_LEVEL_SD, _SMOOTH_SD, _LENGTH = 0.7, 0.5, 3.0  # of what a change does to the logarithm of epochs; octaves
_SHIFTS, _SHIFT_SD = np.linspace(-4.0, 4.0, 9), 1.5  # that a change may have, in octaves
_FAILS = 0.1  # chance that a batch size does not reach the target after a change
_OUTLIERS, _WIDER = 0.05, 4.0  # share of runs that scatter more than most, and how much more
_ROUNDING = 0.29  # standard deviation of what is rounded to whole epochs
_USUAL = 0.3  # chance of a run as far off as this one, from which on it says nothing, unless a batch size that worked fails


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """A run, and what was believed before it.

    Attributes:
        place: index of its batch size.
        epochs: that it completed.
        outcome: what became of it.
        belief: of the logarithm of epochs to the target.
        chance: of reaching the target at all; shape (batch sizes,).
        worked: whether its batch size had reached the target before.
    """

    place: int
    epochs: int
    outcome: Outcome
    belief: Belief
    chance: FloatArray
    worked: bool


class Watch:
    """Watches the runs of a job for a change; ``octaves`` are log2 of the batch sizes, ascending."""

    def __init__(self, octaves: FloatArray) -> None:
        distance = (octaves[:, None] - octaves[None, :]) / _LENGTH
        self._moves: FloatArray = _LEVEL_SD**2 + _SMOOTH_SD**2 * np.exp(-0.5 * distance**2)
        self._sights: deque[Sight] = deque(maxlen=_WINDOW)
        self._unchanged: deque[float] = deque(maxlen=_WINDOW)

    def saw(self, sight: Sight) -> tuple[Sight, ...]:
        """Take note of a run; the runs since a change, empty if there was none."""
        evidence, usual = _unchanged(sight)
        self._sights.append(sight)
        self._unchanged.append(evidence)
        if usual > _USUAL and (sight.outcome == "reached" or not sight.worked):
            return ()
        sights, unchanged = tuple(self._sights), np.array(self._unchanged)
        odds = [_changed(sights[since:], self._moves) - float(unchanged[since:].sum()) for since in range(len(sights))]
        if math.log(sum(map(math.exp, odds))) < math.log(_ODDS * _CHANGES_EACH):
            return ()
        self._sights.clear()
        self._unchanged.clear()
        return sights[int(np.argmax(odds)) :]


def after_change(belief: Belief, octaves: FloatArray) -> Curve:
    """Epochs by batch size after a change, of which all is known that was believed before it.

    Args:
        belief: before the change.
        octaves: log2 of the batch sizes, ascending.
    """
    return Curve(
        shifted_shapes(belief.mean, octaves, _SHIFTS, below=(-1.0, 0.0), above=(0.0, 1.0)),
        octaves,
        roughness=(Roughness(0.15, 0.03), Roughness(0.5, 0.1)),
        noise=tuple(belief.noise),
        length=_LENGTH,
        base=belief.covariance,
        level=_LEVEL_SD,
        likely=np.exp(-0.5 * (_SHIFTS / _SHIFT_SD) ** 2),
    )


def _unchanged(sight: Sight) -> tuple[float, float]:
    """Logarithm of the likelihood of a run if nothing has changed, and the chance of one as far off."""
    belief, place = sight.belief, sight.place
    mean, variance, chance = belief.mean[place], belief.covariance[place, place], sight.chance[place]
    spread = np.sqrt(variance + belief.noise**2 * _scatter(belief)[place] + _rounding(sight.epochs))
    scales = np.concatenate((spread, spread * _WIDER))
    weights = np.concatenate((belief.weights * (1.0 - _OUTLIERS), belief.weights * _OUTLIERS))
    if sight.outcome == "reached":
        z = (math.log(max(sight.epochs, 1)) - mean) / scales
        density = float(weights @ (np.exp(-0.5 * z**2) / scales)) / math.sqrt(2.0 * math.pi)
        as_far = belief.weights @ (2.0 * chances_below(-np.abs(z[: spread.size])))
        return math.log(max(chance * density, 1e-300)), float(as_far)
    survives = float(weights @ chances_below((mean - math.log(sight.epochs + 0.5)) / scales))
    either = float(1.0 - chance * (1.0 - survives))
    return math.log(max(either, 1e-300)), either


def _changed(sights: tuple[Sight, ...], moves: FloatArray) -> float:
    """Logarithm of the likelihood of runs if the curve moved just before the first of them."""
    belief = sights[0].belief
    covariance = belief.covariance + moves
    reached = [each for each in sights if each.outcome == "reached"]
    places = np.array([each.place for each in reached], dtype=int)
    off = np.array([math.log(max(each.epochs, 1)) for each in reached]) - belief.mean[places]
    rounding = np.array([_rounding(each.epochs) for each in reached])
    total, gain = 0.0, np.zeros((len(belief.mean), 0))
    if reached:
        inner = np.repeat(covariance[places[:, None], places][None], belief.noise.size, axis=0)
        diagonal = np.arange(places.size)
        inner[:, diagonal, diagonal] += belief.noise[:, None] ** 2 * _scatter(belief)[places] + rounding
        root = np.linalg.cholesky(inner)
        white = np.linalg.solve(root, np.broadcast_to(off, (belief.noise.size, off.size))[..., None])[..., 0]
        logs = -0.5 * (white**2).sum(axis=1) - np.log(root[:, diagonal, diagonal]).sum(axis=1)
        logs += np.log(np.maximum(belief.weights, 1e-12)) - 0.5 * off.size * math.log(2.0 * math.pi)
        total = float(np.logaddexp.reduce(logs)) + off.size * math.log1p(-_FAILS)
        if len(reached) < len(sights):  # most often all have reached the target, and nobody asks for it
            gain = covariance[:, places] @ np.linalg.inv(inner[int(np.argmax(logs))])
    failed: dict[tuple[int, int], Sight] = {}  # a batch size that worked until the change fails each time, which counts once
    for number, each in enumerate(sights):
        key = each.place, -1 if each.worked and each.place not in places else number
        if each.outcome != "reached" and (key not in failed or each.epochs > failed[key].epochs):
            failed[key] = each
    for each in failed.values():
        mean = belief.mean[each.place] + float(gain[each.place] @ off)
        variance = covariance[each.place, each.place] - float(gain[each.place] @ covariance[places, each.place])
        spread = math.sqrt(max(variance, 1e-6) + belief.noise_variance[each.place])
        survives = chance_below((mean - math.log(each.epochs + 0.5)) / spread)
        total += math.log(_FAILS + (1.0 - _FAILS) * survives)
    return total


def _scatter(belief: Belief) -> FloatArray:
    """Variance from run to run of each batch size, in terms of what all have in common."""
    common = float(belief.weights @ belief.noise**2)
    scatter: FloatArray = belief.noise_variance / common
    return scatter


def _rounding(epochs: int) -> float:
    """Variance of the logarithm of epochs that are whole."""
    return (_ROUNDING / max(epochs, 1)) ** 2
