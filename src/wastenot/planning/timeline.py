"""The calls of an iteration in order of execution, as a schedule sees them, and the markers that a job reaches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.study.sweep import Kernel
from wastenot.workloads.identity import Granularity
from wastenot.workloads.order import loops

MOST_PIECES = 2_000
"""Of an iteration. Where it has more calls, neighbours that are short beside it share a setting."""

ITERATION = "iteration"


@dataclass(frozen=True, slots=True)
class PlacedMarker:
    """A marker, and the call that it comes before."""

    name: str
    call: int


@dataclass(frozen=True, eq=False)
class Timeline:
    """The calls of an iteration.

    Attributes:
        kernel: of each call, shape (calls,).
        piece: that each call belongs to, rising from 0; a piece has one setting. Shape (calls,).
        markers: in order of execution; the first is the iteration's.
    """

    kernel: IndexArray
    piece: IndexArray
    markers: tuple[PlacedMarker, ...]

    @cached_property
    def first(self) -> IndexArray:
        """The first call of each piece, shape (pieces,)."""
        return np.flatnonzero(np.diff(self.piece, prepend=-1))

    def of_pieces(self, values: FloatArray) -> FloatArray:
        """Sums over the calls of each piece of a value that each kernel has; shape (rows, kernels) to (rows, pieces)."""
        return np.array([np.add.reduceat(row[self.kernel], self.first) for row in values])

    def counts(self, setting: IndexArray, settings: int, kernels: int) -> FloatArray:
        """How often each kernel runs at each setting, given that of each piece; shape (settings, kernels)."""
        place = setting[self.piece] * kernels + self.kernel
        return np.bincount(place, minlength=settings * kernels).reshape(settings, kernels).astype(np.float64)


def timeline(kernels: tuple[Kernel, ...], granularity: Granularity, time_s: FloatArray) -> Timeline:
    """The calls of an iteration.

    Args:
        kernels: in order of execution.
        granularity: what gets a setting of its own.
        time_s: of one call of each kernel, shape (kernels,).
    """
    calls: list[int] = []
    markers = [PlacedMarker(ITERATION, 0)]
    names = {ITERATION}
    turns: Counter[str] = Counter()

    def mark(name: str, call: int) -> None:
        if name not in names:
            names.add(name)
            markers.append(PlacedMarker(name, call))

    for loop in loops(kernels):
        first = kernels[loop.members[0]]
        if first.pass_name is not None:
            mark(first.pass_name, len(calls))
        for _ in range(loop.times):
            if first.pass_name is not None and first.block is not None:
                mark(f"{first.pass_name}:{turns[first.pass_name]}", len(calls))
                turns[first.pass_name] += 1
            calls += loop.members
    kernel = np.array(calls, dtype=np.intp)
    return Timeline(kernel, _pieces(kernels, kernel, granularity, time_s), tuple(markers))


def _pieces(kernels: tuple[Kernel, ...], kernel: IndexArray, granularity: Granularity, time_s: FloatArray) -> IndexArray:
    if granularity == "iteration":
        return np.zeros(len(kernel), dtype=np.intp)
    if granularity == "pass":
        number = {name: index for index, name in enumerate(dict.fromkeys(each.pass_name for each in kernels))}
        key = np.array([number[each.pass_name] for each in kernels])[kernel]
    elif len(kernel) <= MOST_PIECES:
        return np.arange(len(kernel))
    else:
        begins_s = np.cumsum(time_s[kernel]) - time_s[kernel]
        key = (begins_s / (float(time_s[kernel].sum()) / MOST_PIECES)).astype(np.intp)
    return np.asarray(np.cumsum(np.diff(key, prepend=key[0]) != 0))
