"""Which batch size the next run should have, and after how many epochs it is better to start over with another.

A run costs what it spends until it reaches the target, or until it is stopped, and then a run of the best alternative.
A run of a batch size that is not the cheapest known is worth it if what it teaches saves more, over as many recurrences
as are to be expected (the knowledge gradient: Frazier, Powell and Dayanik 2008).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.jobs.model.scatter import reached_by

_RUNS_AHEAD = np.array([1.0, 4.0, 16.0])  # of a batch size, which together may teach what one does not
_MOST_EPOCHS = 4000
_PLANS = 160  # lengths of a run that are considered
_TELLS = 0.5
"""Fraction of the runs that would reach the target which must have done so for one that has not to say anything.

A run that is stopped sooner is expected to change no belief, however often it is tried, and so is not counted as teaching.
"""
_STEP = 0.4
_PLACES = np.arange(-3.4, 4.2 + 1e-9, _STEP)  # of runs among those of a batch size, in standard deviations


_reached = reached_by(_PLACES + 0.5 * _STEP)
_share = np.diff(_reached, prepend=0.0)
_share /= _share.sum()


@dataclass(frozen=True, slots=True, eq=False)
class Prospect:
    """What is believed of the cost of runs, by batch size.

    Attributes:
        log_cost: expected logarithm of the cost of reaching the target; shape (batch sizes,).
        covariance: of it; shape (batch sizes, batch sizes).
        noise: variance of the logarithm from run to run; shape (batch sizes,).
        chance: of reaching the target at all; shape (batch sizes,).
        chance_after: of reaching it once a run of another has: the column's after the row's; square.
        epoch_cost: expected cost of an epoch; shape (batch sizes,).
        early: batch sizes, as indices, of runs that were ended before they reached the target.
        early_log_cost: of each of these, by then; shape (early,).
        apart: what would be believed of each batch size but for its own runs that were ended early: expected logarithm
            of the cost and variance of it; shape (2, batch sizes).
        most_epochs: that a run may have, infinite without a bound.
    """

    log_cost: FloatArray
    covariance: FloatArray
    noise: FloatArray
    chance: FloatArray
    chance_after: FloatArray
    epoch_cost: FloatArray
    early: IndexArray
    early_log_cost: FloatArray
    apart: FloatArray
    most_epochs: float


@dataclass(frozen=True, slots=True, eq=False)
class Worth:
    """What runs of each batch size are worth.

    Attributes:
        cost: expected of a recurrence that begins with it; shape (batch sizes,).
        total: expected of all the recurrences to come, above always taking the cheapest known; same shape.
        cheapest: index of the one that is expected to cost least.
    """

    cost: FloatArray
    total: FloatArray
    cheapest: int


@dataclass(frozen=True, slots=True, eq=False)
class _Sorted:
    """Costs of recurrences that begin with each batch size, with nothing in it for what they teach."""

    cost: FloatArray  # shape (batch sizes,)
    best: float
    log_cost: FloatArray  # of runs that reach the target; shape (batch sizes, places)
    share: FloatArray  # of the runs that reach the target there; same shape
    spent: FloatArray  # expected by a run that is stopped there; same shape


def _sort(prospect: Prospect) -> _Sorted:
    log_cost, share = _runs(prospect)
    spent = _spent(prospect, log_cost, share)
    reached = np.cumsum(share, axis=1)
    # Always the same batch size, stopped at the same place, until a run reaches the target.
    best = float((spent / np.maximum(reached, 1e-12)).min())
    cost = (spent - reached * best).min(axis=1) + best
    return _Sorted(cost, best, log_cost, share, spent)


def _failing(chance: FloatArray) -> FloatArray:
    """What failures add to the logarithm of a cost: one costs about two runs before it is stopped, and is run again."""
    added: FloatArray = np.log1p(2.0 * (1.0 - chance) / np.maximum(chance, 1e-3))
    return added


def _runs(prospect: Prospect) -> tuple[FloatArray, FloatArray]:
    """Log costs of runs that reach the target, from low to high, and the chance of each; shapes (batch sizes, places)."""
    mean, variance = prospect.apart
    log_cost = mean[:, None] + np.sqrt(variance + prospect.noise)[:, None] * _PLACES
    log_cost = np.maximum(log_cost, np.log(prospect.epoch_cost)[:, None])
    share = np.broadcast_to(_share, log_cost.shape)
    if prospect.early.size:
        share = share * _left(prospect, log_cost)
        share /= share.sum(axis=1, keepdims=True)
    if math.isfinite(prospect.most_epochs):
        share = np.where(log_cost > np.log(prospect.epoch_cost * (prospect.most_epochs + 0.5))[:, None], 0.0, share)
    return log_cost, prospect.chance[:, None] * share


def _left(prospect: Prospect, log_cost: FloatArray) -> FloatArray:
    """How likely it is, if this is what a run costs, that the runs were not at the target when they were ended early.

    Args:
        prospect: what is believed.
        log_cost: of a run; shape (batch sizes, places).
    """
    at = prospect.early
    mean, variance = prospect.apart[:, at]
    noise = prospect.noise[at]
    known = variance / (variance + noise)
    typical = mean[:, None] + known[:, None] * (log_cost[at] - mean[:, None])
    spread = np.sqrt(noise * (1.0 + known))
    each = np.log1p(-reached_by((prospect.early_log_cost[:, None] - typical) / spread[:, None]) * 0.999)
    left = np.zeros_like(log_cost)
    np.add.at(left, at, each)
    likely: FloatArray = np.exp(left - left.max(axis=1, keepdims=True))
    return likely


def _spent(prospect: Prospect, log_cost: FloatArray, share: FloatArray) -> FloatArray:
    """Expected cost of a run that is stopped at a place, if it has not reached the target; shape (batch sizes, places).

    Args:
        prospect: what is believed.
        log_cost: of runs that reach the target; shape (batch sizes, places).
        share: of the runs that reach the target there; same shape.
    """
    cost = np.exp(np.minimum(log_cost, 600.0))
    width = log_cost[:, 1:2] - log_cost[:, :1]
    epoch = prospect.epoch_cost[:, None]
    epochs = np.ceil(cost * np.exp(np.minimum(0.5 * width, 50.0)) / epoch - 0.5)
    stopped = np.clip(epochs, 1.0, prospect.most_epochs) * epoch
    spent: FloatArray = np.cumsum(share * cost, axis=1) + (1.0 - np.cumsum(share, axis=1)) * stopped
    return spent


def _taught(prospect: Prospect, places: IndexArray, log_cost: FloatArray, share: FloatArray) -> FloatArray:
    """What a recurrence costs less, as expected, for what runs teach that are stopped at a place.

    Whoever knows more can change their mind: either after the target was reached, or after it was not by then. Nothing where
    runs are stopped before most of them would have reached it.

    Args:
        prospect: what is believed before.
        places: indices of the batch sizes that are run; shape (n,).
        log_cost: of runs that reach the target, ascending; shape (n, m).
        share: of the runs that reach it there; same shape.

    Returns:
        Shape (runs ahead, n, m).
    """
    variance = np.diagonal(prospect.covariance)
    spread = np.sqrt(variance[places] + prospect.noise[places] / _RUNS_AHEAD[:, None])
    z = (log_cost - prospect.log_cost[places, None]) / np.sqrt(variance[places] + prospect.noise[places])[:, None]
    moved = prospect.covariance[None, places, :] / spread[:, :, None]
    alone = prospect.log_cost + 0.5 * prospect.noise
    level = alone + _failing(prospect.chance_after[places]) + 0.5 * np.maximum(variance - moved**2, 0.0)
    costs = np.exp(np.minimum(level[..., None] + moved[..., None] * z[:, None, :], 600.0))
    costs *= share[:, None, :]  # of every batch size, in all the worlds where the run gets there; (runs ahead, n, size, m)
    both = prospect.chance_after[places] * prospect.chance[places, None]
    otherwise = (prospect.chance - both) / (1.0 - prospect.chance[places, None])  # chances once one has failed
    failing = np.exp(np.minimum(alone + _failing(np.clip(otherwise, 0.0, 1.0)) + 0.5 * variance, 600.0))
    failing *= (1.0 - share.sum(axis=1))[:, None]
    later = costs[..., ::-1].cumsum(axis=-1)[..., ::-1]
    never = later[..., 0] + failing  # of every batch size, in all worlds
    beyond = np.empty_like(later)
    beyond[..., :-1], beyond[..., -1] = later[..., 1:], 0.0
    beyond += failing[..., None]
    informed = costs.min(axis=2).cumsum(axis=-1) + beyond.min(axis=2)
    ever = np.cumsum(share, axis=1)
    taught: FloatArray = np.maximum(never.min(axis=2)[..., None] - informed, 0.0) * (ever >= _TELLS * ever[:, -1:])
    return taught


def worth(prospect: Prospect, recurrences: float) -> Worth:
    """What runs of each batch size are worth.

    Args:
        prospect: what is believed.
        recurrences: that are expected to come.
    """
    order = _sort(prospect)
    cheapest = int(order.cost.argmin())
    taught = _taught(prospect, np.arange(order.cost.size), order.log_cost, order.share)
    runs = _RUNS_AHEAD[:, None, None]
    extra = order.spent - order.best * np.cumsum(order.share, axis=1)
    total = (runs * extra - np.maximum(recurrences - runs, 0.0) * taught).min(axis=(0, 2))
    return Worth(order.cost, total, cheapest)


def stop_after(prospect: Prospect, place: int, recurrences: float) -> int:
    """Epochs after which a run that has not reached its target is better stopped.

    The stopping rule with the least expected cost. A run tells no more of itself on its way than that it is not there yet,
    so that the rule is known from the start. Reaching the target pays in what it teaches: the earlier, the more.

    Args:
        prospect: what is believed.
        place: index of the batch size of the run.
        recurrences: that are expected to come.
    """
    order, epoch_cost = _sort(prospect), float(prospect.epoch_cost[place])
    middle, variance = prospect.apart[:, place]
    spread = math.sqrt(variance + prospect.noise[place])
    others = float(np.delete(order.cost, place).min(initial=np.inf))
    far = (math.exp(min(middle + 6.0 * spread, 600.0)) + 2.0 * order.best) / epoch_cost
    last = int(max(min(prospect.most_epochs, far, _MOST_EPOCHS), 1.0))
    epochs = np.arange(1, last + 1) if last <= _PLANS else np.unique(np.geomspace(1, last, _PLANS).round())
    reached = reached_by((np.log(epochs + 0.5) + math.log(epoch_cost) - middle) / spread)
    share = np.diff(reached, prepend=0.0)
    log_cost = (np.log(epochs) + math.log(epoch_cost))[None, :]
    if (prospect.early == place).any():
        every = np.broadcast_to(log_cost, (prospect.chance.size, epochs.size))
        left = _left(prospect, every)[place]
        share = share * left
        share /= share.sum() + left[-1] * (1.0 - reached[-1])
    share *= float(prospect.chance[place])
    ever = np.cumsum(share)
    ran = np.diff(epochs, prepend=0) * (1.0 - np.concatenate(([0.0], ever[:-1])))
    spent = epoch_cost * np.cumsum(ran)
    over = min(others, float((spent / np.maximum(ever, 1e-12)).min()))  # with another batch size, or with this one again
    taught = _taught(prospect, np.array([place]), log_cost, share[None, :])[:, 0]
    runs = _RUNS_AHEAD[:, None]
    balance = runs * (spent - over * ever) - np.maximum(recurrences - runs, 0.0) * taught  # of runs so long
    return int(epochs[balance.argmin() % epochs.size])
