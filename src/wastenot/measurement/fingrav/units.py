"""Units of a run: executions of the profiled kernel, or groups of them where one is too short to be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
