"""What estimates are made from: runs of kernels in phases, with all times on the host's clock.

groups      ▮▮▮▮▮▮▯▯▯▯▯▯▯▯▯▯▯▮▮▮▮▮▮▯▯▯▯▯▯▯▯▯▯▯
phases      │ 0  │    1     │  2 │    3    │
used             ··▯▯▯▯▯▯▯▯▯      ··▯▯▯▯▯▯▯        the first groups of a phase run with what others left in the cache
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import Channel
from wastenot.devices.timeline import ClockStamps, Timeline

Load = tuple[str, str]
"""A kernel's name, and the data that it runs on."""

SKIPPED_GROUPS = 2
"""Groups after a change of kernels that do not count for time: the first was up to 16 % off on H200s, the second not."""

_CALLS_AFTER_REST = 4
"""Calls after a rest that do not count either: GPUs take longer for them."""

_CHANGES_CLOCK_S = 0.25  # groups this close in time have more in common than others of the run
_GAP_S = 1e-4  # between groups, from which the GPU rested


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A timeline with what is needed to understand it.

    Attributes:
        timeline: what was seen.
        subjects: name and data of each that was prepared, the kernel of interest first.
        call_s: time of a call of each when it was tried.
        channels: power readings, total first.
        stamps: quality of the cycle counter.
        how: how the kernels ran.
    """

    timeline: Timeline
    subjects: tuple[Load, ...]
    call_s: tuple[float, ...]
    channels: tuple[Channel, ...]
    stamps: ClockStamps
    how: str

    @property
    def seconds(self) -> float:
        """Device time that it took, rests between phases included."""
        timeline = self.timeline
        return float(timeline.end_s[-1] - timeline.begin_s[0]) if len(timeline.begin_s) else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Groups of calls of one run, on the host's clock; arrays of shape (groups,).

    Attributes:
        load: index of what runs, in ``loads``.
        loads: that the run had, the kernel of interest first.
        phase: index of the phase.
        since: number of groups of the phase before each.
        begin_s, end_s: bounds.
        calls: number of calls in each.
        call_s: mean time of a call.
        core_mhz: mean SM clock.
        temperature_c: mean over the run; NaN where it is unknown.
    """

    load: IndexArray
    loads: tuple[Load, ...]
    phase: IndexArray
    since: IndexArray
    begin_s: FloatArray
    end_s: FloatArray
    calls: IndexArray
    call_s: FloatArray
    core_mhz: FloatArray
    temperature_c: float

    @property
    def block(self) -> IndexArray:
        """Index of the stretch of time that each belongs to, whose groups have errors in common."""
        return np.asarray(np.floor((self.begin_s - self.begin_s[:1]) / _CHANGES_CLOCK_S), dtype=np.intp)

    def used(self, load: int) -> IndexArray:
        """Groups of a load that count for its time."""
        good = np.isfinite(self.call_s) & (self.core_mhz > 0.0) & (self.call_s > 0.0)
        awake = self.calls_since_rest >= _CALLS_AFTER_REST
        return np.flatnonzero((self.load == load) & (self.since >= SKIPPED_GROUPS) & awake & good)

    @property
    def calls_since_rest(self) -> FloatArray:
        """Number of calls between the last rest and each group."""
        before = np.cumsum(self.calls) - self.calls
        rested = (self.rested > 0.0) | (np.arange(len(before)) == 0)
        return np.asarray(before - np.maximum.accumulate(np.where(rested, before, 0)), dtype=float)

    @property
    def rested(self) -> FloatArray:
        """Time of rest before each group; shorter gaps are the work of stamps, and count as none."""
        gap = self.begin_s - np.concatenate([self.begin_s[:1], self.end_s[:-1]])
        return np.asarray(np.where(gap > _GAP_S, gap, 0.0))


def groups_of(run: Recorded) -> Groups:
    """The groups of a run, on the host's clock."""
    timeline = run.timeline
    clocks = fit_clocks(timeline.round_trips)
    changes = np.append(True, np.diff(timeline.phase) != 0)
    number = np.arange(len(timeline.phase))
    since = number - np.maximum.accumulate(np.where(changes, number, 0))
    temperature = float(np.mean(timeline.temperature_c)) if timeline.temperature_c is not None else float("nan")
    return Groups(
        load=timeline.subject,
        loads=run.subjects,
        phase=timeline.phase,
        since=np.asarray(since, dtype=np.intp),
        begin_s=clocks.host(timeline.begin_s),
        end_s=clocks.host(timeline.end_s),
        calls=timeline.calls,
        call_s=timeline.call_s,
        core_mhz=timeline.core_mhz,
        temperature_c=temperature,
    )
