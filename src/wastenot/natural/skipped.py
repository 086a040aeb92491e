"""Cycles that kernels skip: at one clock of the driver, fewer cycles are counted under matrix products than under others.

    clock that the driver reports    ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾
    cycles counted a second          ______________/‾‾‾‾‾‾‾‾‾
                                        products   │ light kernel

What all kernels of an iteration have in common is the clock that the driver reports. Nothing but a change of kernels shows
how many cycles are skipped: right after products have ended, the clock is still what it was, and a light kernel skips none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from wastenot.arrays import FloatArray
from wastenot.devices.timeline import Timeline
from wastenot.natural.seen import Seen

_SHAPE_MHZ = np.array([1300.0, 1475.0, 1550.0, 1650.0, 1750.0, 1850.0, 1960.0])
_SHAPE = np.array([0.084, 0.092, 0.097, 0.1035, 0.122, 0.146, 0.1985]) / 0.0937
"""How the fraction skipped grows with the clock, of products on an H200 (data/h200/natural, 424 changes), 1 at 1,500 MHz."""

_MOST = 0.5
_TOO_FEW = 3  # changes from which a ratio is not known
_NONE = 0.01  # fractions below are not told from none
_LONGEST_GAP_S = 3e-3  # between the middles of two groups: the clock is held for longer after products


@dataclass(frozen=True, slots=True)
class Skipped:
    """Cycles that a kernel skips.

    Attributes:
        fraction: of the cycles, where the driver reports 1,500 MHz.
    """

    fraction: float = 0.0

    def counted_mhz(self, reported_mhz: ArrayLike) -> FloatArray:
        """Cycles counted, in millions a second, at clocks that the driver reports."""
        reported = np.asarray(reported_mhz, dtype=float)
        return np.asarray(reported * (1.0 - np.minimum(self.fraction * _growth(reported), _MOST)))

    def reported_mhz(self, counted_mhz: float) -> float:
        """The clock that the driver reports where cycles are counted at a given rate, the lowest if there are several."""
        reported = counted_mhz
        for _ in range(60):  # a contraction, as the fraction grows slowly
            reported *= counted_mhz / float(self.counted_mhz(reported))
        return reported


def _growth(reported_mhz: FloatArray) -> FloatArray:
    """The fraction skipped at clocks that the driver reports, relative to that at 1,500 MHz."""
    return np.asarray(np.interp(reported_mhz, _SHAPE_MHZ, _SHAPE))


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Changes from heavy work to a kernel, or from it to heavy work's successor; arrays of shape (changes,).

    Attributes:
        before_mhz: cycles counted in the last group of heavy work, in millions a second.
        after_mhz: in the first group of the kernel.
    """

    before_mhz: FloatArray
    after_mhz: FloatArray


def skipped_in(runs: Sequence[Seen], light: Collection[str]) -> dict[str, Skipped]:
    """What each kernel skips, from runs beside heavy work: see :func:`skipped_cycles`.

    Args:
        runs: their first subject is the kernel of interest, their second the heavy work.
        light: names of kernels known to skip none.
    """
    beside = Counter(run.subjects[1] for run in runs if len(run.subjects) > 1)
    if not beside:
        return {}
    heavy = beside.most_common(1)[0][0]
    of_kernel: dict[str, list[Timeline]] = {}
    for run in runs:
        if len(run.subjects) > 1 and run.subjects[1] == heavy:
            of_kernel.setdefault(run.subjects[0][0], []).append(run.timeline)
    return skipped_cycles({name: changes_of(timelines) for name, timelines in of_kernel.items()}, light)


def changes_of(timelines: Sequence[Timeline], kernel: int = 0, heavy: int = 1) -> Changes:
    """Changes from heavy work to a kernel in timelines.

    Args:
        timelines: in which the two have the same places.
        kernel: index of the kernel among the subjects.
        heavy: index of the heavy work.
    """
    before, after = [np.empty(0)], [np.empty(0)]
    for timeline in timelines:
        subject, middle_s = timeline.subject, 0.5 * (timeline.begin_s + timeline.end_s)
        change = np.flatnonzero((subject[:-1] == heavy) & (subject[1:] == kernel))
        change = change[np.diff(middle_s)[change] <= _LONGEST_GAP_S]
        before.append(timeline.core_mhz[change])
        after.append(timeline.core_mhz[change + 1])
    return Changes(np.concatenate(before), np.concatenate(after))


def skipped_cycles(changes: Mapping[str, Changes], light: Collection[str]) -> dict[str, Skipped]:
    """What each kernel skips, from changes of the same heavy work to each.

    Light kernels skip none, which tells how much the heavy work skips; then what any other kernel counts right after it
    tells how much that one skips.

    Args:
        changes: by kernel.
        light: names of kernels known to skip none.

    Returns:
        By kernel, those that skip any.
    """
    known = {name: each for name, each in changes.items() if len(each.before_mhz) >= _TOO_FEW}
    reference = [
        (1.0 - each.before_mhz / each.after_mhz) / _growth(each.after_mhz) for name, each in known.items() if name in light
    ]
    if not reference:
        return {}
    heavy = Skipped(max(float(np.median(np.concatenate(reference))), 0.0))
    if heavy.fraction < _NONE:
        return {}
    found = {}
    for name, each in known.items():
        if name in light:
            continue
        reported = np.array([heavy.reported_mhz(counted) for counted in each.before_mhz.tolist()])
        fraction = float(np.median((1.0 - each.after_mhz / reported) / _growth(reported)))
        if fraction >= _NONE:
            found[name] = Skipped(fraction)
    return found
