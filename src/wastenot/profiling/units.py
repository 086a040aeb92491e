"""Units of a run: executions of the profiled kernel, or groups of them where one is too short to be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.devices.instrument import BurstRun
from wastenot.profiling.collect import TimedRun


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Units of the profiled kernel in each of several runs; arrays of shape (runs, units), NaN where a run has fewer.

    Attributes:
        begin_s, end_s: from the first execution's begin to the last one's end.
    """

    begin_s: FloatArray
    end_s: FloatArray

    @property
    def time_s(self) -> FloatArray:
        """Time of each."""
        return np.asarray(self.end_s - self.begin_s)


def merged(run: BurstRun, kernel: int, group: int) -> BurstRun:
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


def merged_others(run: BurstRun, own: int, unit_s: float) -> BurstRun:
    """A run whose executions of other kernels in a row count as few that take about so long, as far as they are shorter."""
    for which in np.unique(run.kernel[run.kernel != own]).tolist():
        ours = np.flatnonzero(run.kernel == which)
        group = min(round(unit_s / float(np.median(run.end_s[ours] - run.begin_s[ours]))), len(ours))
        if group > 1 and ours[-1] - ours[0] == len(ours) - 1:
            run = merged(run, which, group)
    return run


def units_of(runs: Sequence[TimedRun], kernel: int, group: int, units: int) -> Units:
    """The first units of runs.

    Args:
        runs: of which some may have fewer units.
        kernel: index of the profiled one among those of a run.
        group: executions in a unit.
        units: of each run.
    """
    begins, ends = np.full((len(runs), units), np.nan), np.full((len(runs), units), np.nan)
    for place, run in enumerate(runs):
        ours = np.flatnonzero(run.kernel == kernel)
        whole = ours[: min(len(ours) // group, units) * group]
        begins[place, : len(whole) // group] = run.begin_s[whole[::group]]
        ends[place, : len(whole) // group] = run.end_s[whole[group - 1 :: group]]
    return Units(begins, ends)
