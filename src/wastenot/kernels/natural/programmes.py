"""Which phases to run next, so that a kernel is seen at the clocks where little is known of it yet.

    alone      ▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯    its own clock, and the regulator's slow swings where it is held back
    wakes      ▮▮▮▮▮▮▮▮▮▮▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯    every clock in between, on the way up
    mixtures   ▮▮▯▯▯▮▮▯▯▯▮▮▯▯▯▮▮▯▯▯▮▮▯▯▯▮    clocks that last, the lower the more products there are
    rushes     ▯▯▯▯____▯▯▯▯____▯▯▯▯____▯▯    clocks above its own, before the regulator has acted
    breaks     ▯▯▯_▯▯▯_▯▯▯_▯▯▯_▯▯▯_▯▯▯_▯▯    clocks above its own that last, since rests leave it headroom

What each kind adds at each clock shows once it has run. The next one is the kind that adds most of what is missing in the
same time; nothing is run any more once nothing is missing, or none adds anything.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Literal

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.devices.instrument import TOTAL, Channel
from wastenot.devices.timeline import REST, Phase
from wastenot.kernels.natural.seen import Groups, Recorded, groups_of

Kind = Literal["first", "alone", "wakes", "mixtures", "rushes", "breaks"]

_KERNEL, _PRODUCT = 0, 1  # subjects
_BIN_MHZ = 40.0
_NEEDED_GROUPS = 12.0  # of a bin
_NEEDED_READINGS = 1.2  # worth of readings that show nothing but the kernel, at a clock of a bin or next to it
_NEEDED = np.array([[_NEEDED_GROUPS], [_NEEDED_READINGS]])
_NEEDED_RUNS = 3  # since runs of the same kernel differ
_LEAST_GROUPS = 6.0  # in all runs, from which a bin is among those that the kernel can be seen at,
_LEAST_FRACTION = 0.004  # and this fraction of all of its groups
_LEAST_MISSING = 0.06  # of what is needed: less is no reason for another run
_LEAST_GAIN = 0.15  # bins' worth that another second has to add
_SHORTEST_S = 0.8  # left, for another run to be worth it
_HELD = 0.985  # of the highest clock: below it by itself, a kernel is held back by the power limit
_SETTLED_S = 0.3


def next_programme(seen: Sequence[Recorded], call_s: Sequence[float], left_s: float) -> tuple[Phase, ...]:
    """The phases to run next for a kernel; none when nothing is missing that more runs could add.

    Args:
        seen: its runs so far; their subjects are the kernel and a heavy product.
        call_s: time of a call of each.
        left_s: device time left for this kernel.
    """
    if not seen:
        return _within(_phases("first", np.random.default_rng(0), call_s), left_s)
    kind = _next_kind(seen) if left_s >= _SHORTEST_S else None
    rng = np.random.default_rng((zlib.crc32(seen[0].subjects[_KERNEL][0].encode()), len(seen)))
    return () if kind is None else _within(_phases(kind, rng, call_s), left_s)


def _next_kind(seen: Sequence[Recorded]) -> Kind | None:
    """The kind of programme that adds most of what is missing; ``None`` where nothing is, or none adds anything."""
    groups = [groups_of(run) for run in seen]
    kinds = [_kind(each) for each in groups]
    covered = [_coverage(run, each) for run, each in zip(seen, groups, strict=True)]
    total = np.sum(covered, axis=0)
    missing = _missing(total, len(seen))
    if missing.sum() < _LEAST_MISSING * 2.0 * max(int(np.count_nonzero(_reached(total))), 1):
        return None
    suited = _suited(groups)
    untried = [kind for kind in suited if kind not in kinds]
    if untried:
        return untried[0]
    gains = {}
    for kind in suited:
        ran = [index for index, one in enumerate(kinds) if one == kind]
        a_second = np.sum([covered[index] for index in ran], axis=0) / sum(_seconds(groups[index]) for index in ran)
        gains[kind] = float(np.minimum(a_second / _NEEDED, missing).sum())
    best = max(suited, key=lambda kind: gains[kind])
    return None if len(seen) >= _NEEDED_RUNS and gains[best] < _LEAST_GAIN else best


def _phases(kind: Kind, rng: np.random.Generator, call_s: Sequence[float]) -> tuple[Phase, ...]:
    """Phases of a kind, with random durations so that readings fall on all moments of them."""

    def some(low: float, high: float, subject: int) -> float:
        shortest = 3.0 * call_s[subject] if subject < len(call_s) and subject != REST else 0.0
        return max(float(rng.uniform(low, high)), min(shortest, 0.1))

    phases: list[Phase] = []
    if kind == "alone":
        return (Phase(_KERNEL, some(2.2, 2.6, _KERNEL)),)
    if kind == "first":
        phases.append(Phase(_KERNEL, some(1.0, 1.2, _KERNEL)))
    if kind in ("first", "wakes"):
        for _ in range(4 if kind == "first" else 5):
            phases += [Phase(_PRODUCT, some(0.12, 0.22, _PRODUCT)), Phase(_KERNEL, some(0.12, 0.25, _KERNEL))]
    elif kind == "mixtures":
        phases.append(Phase(_PRODUCT, some(0.15, 0.2, _PRODUCT)))
        for product_s, kernel_s in ((0.018, 0.008), (0.012, 0.012), (0.008, 0.016), (0.006, 0.024)):
            for _ in range(round(0.45 / (product_s + kernel_s))):
                phases += [
                    Phase(_KERNEL, some(0.7 * kernel_s, 1.3 * kernel_s, _KERNEL)),
                    Phase(_PRODUCT, some(0.7 * product_s, 1.3 * product_s, _PRODUCT)),
                ]
    elif kind == "rushes":
        for _ in range(8):
            phases += [Phase(REST, some(0.08, 0.14, REST)), Phase(_KERNEL, some(0.06, 0.16, _KERNEL))]
    elif kind == "breaks":
        phases.append(Phase(_KERNEL, some(0.1, 0.15, _KERNEL)))
        for kernel_s, rest_s in ((0.03, 0.005), (0.02, 0.007), (0.02, 0.014)):
            for _ in range(round(0.6 / (kernel_s + rest_s))):
                phases += [
                    Phase(REST, some(0.7 * rest_s, 1.3 * rest_s, REST)),
                    Phase(_KERNEL, some(0.7 * kernel_s, 1.3 * kernel_s, _KERNEL)),
                ]
    return tuple(phases)


def _within(phases: Sequence[Phase], left_s: float) -> tuple[Phase, ...]:
    """The phases that fit into the time left; at least the first."""
    until = np.cumsum([phase.seconds for phase in phases])
    return tuple(phases[: max(int(np.searchsorted(until, left_s, side="right")), 1)])


def _kind(groups: Groups) -> Kind:
    """The kind of programme that a run was of, by its phases; phases without groups were rests."""
    products = groups.load == _PRODUCT
    rests = len(np.unique(groups.phase)) < int(groups.phase.max()) + 1
    if not np.any(products):
        if not rests:
            return "alone"
        return "rushes" if float(np.median(groups.rested[groups.rested > 0.0])) > 0.04 else "breaks"
    if _phase_seconds(groups, _KERNEL).max(initial=0.0) > 0.8:
        return "first"
    return "wakes" if float(np.median(_phase_seconds(groups, _PRODUCT))) > 0.06 else "mixtures"


def _phase_seconds(groups: Groups, load: int) -> FloatArray:
    ours = groups.load == load
    phases = groups.phase[ours]
    seconds = np.bincount(phases, (groups.end_s - groups.begin_s)[ours])
    return np.asarray(seconds[np.unique(phases)])


def _seconds(groups: Groups) -> float:
    return max(float(groups.end_s[-1] - groups.begin_s[0]), 1e-3)


def _suited(groups: Sequence[Groups]) -> tuple[Kind, ...]:
    """Kinds of programmes that suit a kernel: what the power limit holds back goes to clocks above its own in other ways."""
    top = max(float(np.quantile(each.core_mhz, 0.995)) for each in groups)
    alone = [_settled(each) for each in groups]
    clocks = np.concatenate(alone)
    if len(clocks) and float(np.mean(clocks)) < _HELD * top:
        return ("alone", "breaks", "rushes")
    return ("mixtures", "wakes")


def _settled(groups: Groups) -> FloatArray:
    """Clocks of the kernel by itself, long after anything else."""
    own = groups.load == _KERNEL
    since = np.append(True, np.diff(groups.phase) != 0) | (groups.rested > 0.0)
    last = np.maximum.accumulate(np.where(since, np.arange(len(own)), 0))
    return np.asarray(groups.core_mhz[own & (groups.begin_s - groups.begin_s[last] > _SETTLED_S)])


def _bins(core_mhz: FloatArray) -> IndexArray:
    return np.clip((core_mhz / _BIN_MHZ).astype(np.intp), 0, _BINS - 1)


_BINS = 100


def _coverage(run: Recorded, groups: Groups) -> FloatArray:
    """Groups and readings' worth of the kernel at each bin of clocks; shape (2, bins)."""
    covered = np.zeros((2, _BINS))
    used = groups.used(_KERNEL)
    covered[0] = np.bincount(_bins(groups.core_mhz[used]), minlength=_BINS)
    channel = next((one for one in run.channels if one.name == TOTAL), None)
    log = run.timeline.readings.get(TOTAL)
    if channel is None or log is None:
        covered[1] = np.where(covered[0] > 0.0, np.inf, 0.0)  # nothing is missing that cannot be had
        return covered
    own = groups.load == _KERNEL
    where = _bins(groups.core_mhz)
    for moment_s in log.moment_s.tolist():
        weight = _weight(groups, moment_s, channel) * own
        shown = np.bincount(where, weight, minlength=_BINS)
        # A reading counts for what it shows of the kernel, and for the clocks next to it too.
        covered[1] += np.convolve(shown, [0.5, 1.0, 0.5], mode="same") * min(float(shown.sum()), 1.0)
    return covered


def _weight(groups: Groups, moment_s: float, channel: Channel) -> FloatArray:
    """What each group counts in a reading."""
    end_s = moment_s - channel.delay_s
    begin, end = np.minimum(groups.begin_s - end_s, 0.0), np.minimum(groups.end_s - end_s, 0.0)
    if channel.lag_s > 0.0:
        return np.asarray(np.exp(end / channel.lag_s) - np.exp(begin / channel.lag_s))
    span_s = max(channel.window_s, 1e-6)
    return np.asarray((np.maximum(end, -span_s) - np.maximum(begin, -span_s)) / span_s)


def _reached(covered: FloatArray) -> BoolArray:
    """The bins that the kernel is seen at, but for those that it hardly ever is."""
    return np.asarray(covered[0] >= np.maximum(_LEAST_GROUPS, _LEAST_FRACTION * covered[0].sum()))


def _missing(covered: FloatArray, runs: int) -> FloatArray:
    """What is missing of groups and readings at the clocks that the kernel is seen at, as a fraction; shape (2, bins)."""
    reached = _reached(covered)
    missing = np.maximum(1.0 - covered / _NEEDED, 0.0) * reached
    if runs < _NEEDED_RUNS:
        missing = np.maximum(missing, reached / _NEEDED_RUNS)
    return np.asarray(missing)
