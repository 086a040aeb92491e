"""Units of a run: executions of the profiled kernel, or groups of them where one is too short to be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wastenot.frontier.points import FloatArray
from wastenot.measurement.fingrav.collect import TimedRun


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Units of the profiled kernel in each of several runs; arrays of shape (runs, units).

    Attributes:
        begin_s, end_s: from the first execution's begin to the last one's end.
    """

    begin_s: FloatArray
    end_s: FloatArray

    @property
    def time_s(self) -> FloatArray:
        """Time of each."""
        return np.asarray(self.end_s - self.begin_s)


def merged(run: TimedRun, kernel: int, group: int) -> TimedRun:
    """A run whose units of the profiled kernel count as executions; what is left over at the end is left out."""
    ours = np.flatnonzero(run.kernel == kernel)
    whole = ours[: len(ours) // group * group]
    first, last = whole[::group], whole[group - 1 :: group]
    others = np.flatnonzero(run.kernel != kernel)
    begin = np.concatenate([run.begin_s[others], run.begin_s[first]])
    order = np.argsort(begin, kind="stable")
    end = np.concatenate([run.end_s[others], run.end_s[last]])
    which = np.concatenate([run.kernel[others], run.kernel[first]])
    return replace(run, kernel=which[order], begin_s=begin[order], end_s=end[order])


def units_of(runs: Sequence[TimedRun], kernel: int, group: int, units: int) -> Units:
    """The first units of runs.

    Args:
        runs: each of so many units at least.
        kernel: index of the profiled one among those of a run.
        group: executions in a unit.
        units: of each run.
    """
    begins, ends = [], []
    for run in runs:
        ours = np.flatnonzero(run.kernel == kernel)[: units * group]
        begins.append(run.begin_s[ours[::group]])
        ends.append(run.end_s[ours[group - 1 :: group]])
    return Units(np.array(begins), np.array(ends))
