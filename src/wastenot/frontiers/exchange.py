"""Better schedules from good ones: stretches exchanged with another schedule, changes moved to other calls."""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.frontiers.switched_work import ROUNDING, SwitchedWork

# Limits of a local search, by hand. They bound its time; a move that is taken saves energy, or brings a schedule into its
# budget.
_MOST_MOVES = 60
_TRIED = 8  # of the moves that look best
_REACH = 24  # calls by which a change is moved, one more each
_MOST_STEPS = 4_000  # looked at together for longer moves


def combined(work: SwitchedWork, base: IndexArray, other: IndexArray, within: float) -> IndexArray:
    """A schedule with those stretches of another that save most for their time, as far as the budget allows.

    A stretch reaches from a call on which both agree to the next.

    Args:
        work: what they are schedules of.
        base: setting of each call, within the budget; shape (calls,).
        other: the same of a schedule that saves more and takes longer.
        within: the budget.
    """
    differ = base != other
    begins = np.flatnonzero(differ & ~np.roll(differ, 1))
    if not len(begins):
        return base
    ends = np.flatnonzero(~differ & np.roll(differ, 1))
    ends = np.concatenate([ends[ends > begins[0]], ends[ends <= begins[0]] + work.calls])
    stretches = [np.arange(begin, end) % work.calls for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    call = np.arange(work.calls)
    stretch = np.repeat(np.arange(len(stretches)), [len(each) for each in stretches])
    order = np.concatenate(stretches)
    longer, dearer = (
        np.bincount(stretch, (table[call, other] - table[call, base])[order]) for table in (work.weight_s, work.energy_j)
    )
    with np.errstate(divide="ignore"):
        rate = np.where(longer > 0.0, -dearer / np.maximum(longer, 1e-300), np.where(dearer < 0.0, np.inf, -np.inf))
    ranked = np.argsort(-rate)[: int((rate > 0.0).sum())]

    def with_first(count: int) -> IndexArray:
        taken = np.zeros(len(stretches), dtype=bool)
        taken[ranked[:count]] = True
        tried = base.copy()
        changed = order[taken[stretch]]
        tried[changed] = other[changed]
        return tried

    low, high = 0, len(ranked)  # the most of them that are within the budget
    while low < high:
        middle = (low + high + 1) // 2
        if work.totals(with_first(middle)).weight_s <= within:
            low = middle
        else:
            high = middle - 1
    now = with_first(low)
    if not work.keeps(now):
        now, low = base, 0
    least_j = work.totals(now).energy_j
    for index in ranked[low : low + _MOST_MOVES].tolist():
        tried = now.copy()
        tried[stretches[index]] = other[stretches[index]]
        totals = work.totals(tried)
        if totals.weight_s <= within and totals.energy_j < least_j and work.keeps(tried):
            now, least_j = tried, totals.energy_j
    return now


def moved(work: SwitchedWork, setting: IndexArray, within: float, price: float, insert: bool = False) -> IndexArray:
    """A schedule whose changes are moved to other calls, and whose stays have other settings.

    First until it is within the budget, at the least energy for the time; then while that saves energy.

    Args:
        work: what it is a schedule of.
        setting: of each call, shape (calls,).
        within: the budget.
        price: of time; of moves that save energy, those that leave most besides the price of their time come first.
        insert: whether new stays may be put in, too.
    """
    now, totals = setting, work.totals(setting)
    for _ in range(_MOST_MOVES):
        moves = _moves(work, now, insert)
        first, end, to, longer, dearer = moves
        over = totals.weight_s > within
        if over:
            fits = np.flatnonzero(longer < 0.0)
            needed = np.minimum(-longer[fits], totals.weight_s - within)
            fits = fits[np.argsort((dearer[fits] + price * np.minimum(0.0, longer[fits] + needed)) / needed)]
        else:
            fits = np.flatnonzero((dearer < 0.0) & (totals.weight_s + longer <= within))
            fits = fits[np.argsort((dearer + price * longer)[fits])]
        for move in fits[:_TRIED].tolist():
            tried = now.copy()
            tried[np.arange(first[move], end[move]) % work.calls] = to[move]
            after = work.totals(tried)
            better = after.energy_j < totals.energy_j * (1.0 - ROUNDING) and after.weight_s <= within
            if over:
                better = after.weight_s < totals.weight_s * (1.0 - ROUNDING)
            if better and work.keeps(tried):
                now, totals = tried, after
                break
        else:
            break
    return now


def _moves(
    work: SwitchedWork, setting: IndexArray, insert: bool
) -> tuple[IndexArray, IndexArray, IndexArray, FloatArray, FloatArray]:
    """Moves of a schedule: calls from and to before, the setting they get, the weight and energy added without switches."""
    stays = work.stays(setting)
    if len(stays) < 2:
        return _insertions(work, setting)
    call = np.arange(work.calls)
    weight, energy = work.weight_s, work.energy_j
    first, own = np.array([stay.first for stay in stays]), np.array([stay.setting for stay in stays])
    before = np.roll(own, 1)
    most = min(work.calls // 2, max(_REACH, _MOST_STEPS // len(stays)))
    reach = np.arange(1, most + 1)
    seen = np.unique(np.concatenate([reach[:_REACH], np.geomspace(1, most, _REACH).astype(np.intp)])) - 1
    found: list[tuple[IndexArray, IndexArray, IndexArray, FloatArray, FloatArray]] = []
    # A change later: calls from it on stay at the setting before. A change earlier: calls before it have the one after.
    later = (first[:, None] + reach - 1) % work.calls
    sooner = (first[:, None] - reach) % work.calls
    for calls, old, new, begin, end in (
        (later, own, before, np.broadcast_to(first[:, None], later.shape), first[:, None] + reach),
        (sooner, before, own, first[:, None] - reach, np.broadcast_to(first[:, None], sooner.shape)),
    ):
        longer, dearer = (
            np.cumsum(table[calls, new[:, None]] - table[calls, old[:, None]], axis=1)[:, seen] for table in (weight, energy)
        )
        to = np.broadcast_to(new[:, None], longer.shape)
        found.append((begin[:, seen].ravel(), end[:, seen].ravel(), to.ravel(), longer.ravel(), dearer.ravel()))
    # Another setting for a stay.
    stay = np.repeat(np.arange(len(stays)), [each.end - each.first for each in stays])
    calls = np.concatenate([np.arange(each.first, each.end) for each in stays]) % work.calls
    at = np.flatnonzero(np.diff(stay, prepend=-1))
    sums = [np.add.reduceat(table[calls] - table[call, setting][calls][:, None], at, axis=0) for table in (weight, energy)]
    shape = sums[0].shape
    until = np.array([each.end for each in stays])
    found.append(
        (
            np.broadcast_to(first[:, None], shape).ravel(),
            np.broadcast_to(until[:, None], shape).ravel(),
            np.broadcast_to(np.arange(work.settings), shape).ravel(),
            sums[0].ravel(),
            sums[1].ravel(),
        )
    )
    if insert:
        found.append(_insertions(work, setting))
    begin, end, to = (np.concatenate([each[column] for each in found]) for column in range(3))
    longer, dearer = (np.concatenate([each[column] for each in found]) for column in (3, 4))
    return begin, end, to, longer, dearer


def _insertions(
    work: SwitchedWork, setting: IndexArray
) -> tuple[IndexArray, IndexArray, IndexArray, FloatArray, FloatArray]:
    """New stays, each as short as it may be."""
    call = np.arange(work.calls)
    twice_s = np.concatenate([work.ends_s[:-1], work.ends_s[-1] + work.ends_s])
    lasts_s = np.where(work.slow[setting], work.slow_stay_s, work.stay_s)  # by the setting before, which follows again
    ends = np.empty((work.calls, work.settings), dtype=np.intp)
    for each in range(work.settings):
        until_s = twice_s[: work.calls, each] + np.where(np.isfinite(lasts_s[:, each]), lasts_s[:, each], 0.0)
        ends[:, each] = np.searchsorted(twice_s[:, each], until_s)
    possible = np.isfinite(lasts_s) & (ends - call[:, None] < work.calls) & (setting[:, None] != np.arange(work.settings))
    begin, to = np.nonzero(possible)
    end = np.maximum(ends[possible], begin + 1)
    added = []
    for table in (work.weight_s, work.energy_j):
        rise = table - table[call, setting][:, None]
        sums = np.concatenate([np.zeros((1, work.settings)), np.cumsum(np.concatenate([rise, rise]), axis=0)])
        added.append(sums[end, to] - sums[begin, to])
    return begin, end, to, added[0], added[1]
