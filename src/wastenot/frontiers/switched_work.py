"""Work whose calls follow each other in a loop, each at some setting, where settings take time to change.

    call        0   1   2   3   4   5   6   7   0 ...
    setting     A   A   A   B   B   B   B   A   A
    stay               |-------------|               lasts at least the least stay; the one at A goes on over the end

A switch is asked for ahead of time, so that on average it arrives between two calls. What remains of it is a stall, some
energy, and, where its latency varies, calls on either side that run at the other setting for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from wastenot.arrays import FloatArray, IndexArray
from wastenot.errors import BadInputError

IMPOSSIBLE = 1e3
"""Times the whole work at its dearest: what a call counts at a setting that it cannot have."""


class Totals(NamedTuple):
    """What one round of the work takes, with its switches.

    Attributes:
        time_s: its time.
        weight_s: what counts against the budget.
        energy_j: its energy.
    """

    time_s: float
    weight_s: float
    energy_j: float


class Stay(NamedTuple):
    """Calls ``first`` to before ``end`` at one setting; ``end`` may be past the last call, where the next round begins."""

    first: int
    end: int
    setting: int


@dataclass(frozen=True, eq=False)
class SwitchedWork:
    """Calls in order of execution, what each takes at each setting, and what it takes to change settings.

    Attributes:
        time_s: shape (calls, settings); infinite where a call cannot have a setting.
        energy_j: likewise.
        weight_s: what counts against a budget, by default the time.
        stay_s: least time at a setting before it is left quickly.
        slow_stay_s: least time at a setting before it is left for one that takes long to change to.
        slow: whether it takes long to change from a setting to another; shape (settings, settings).
        switch_s: time that a switch takes, shape (settings, settings).
        switch_j: energy that it takes besides.
        off_s: mean time by which switches are late or early, half of it each; shape (settings, settings).
    """

    time_s: FloatArray
    energy_j: FloatArray
    weight_s: FloatArray
    stay_s: float
    slow_stay_s: float
    slow: NDArray[np.bool_]
    switch_s: FloatArray
    switch_j: FloatArray
    off_s: FloatArray

    @classmethod
    def of(
        cls,
        time_s: FloatArray,
        energy_j: FloatArray,
        *,
        weight_s: FloatArray | None = None,
        stay_s: float = 0.0,
        slow_stay_s: float | None = None,
        slow: NDArray[np.bool_] | None = None,
        switch_s: FloatArray | float = 0.0,
        switch_j: FloatArray | float = 0.0,
        off_s: FloatArray | float = 0.0,
    ) -> Self:
        """The work, with what is not given left out.

        Raises:
            BadInputError: there is no call or no setting, or a call that can have none.
        """
        if time_s.ndim != 2 or not time_s.size or time_s.shape != energy_j.shape:
            raise BadInputError("`time_s`: must be a table (calls, settings) with a call and a setting, as must `energy_j`")
        weight_s = time_s if weight_s is None else weight_s
        possible = np.isfinite(time_s) & np.isfinite(energy_j) & np.isfinite(weight_s)
        if not possible.any(axis=1).all():
            raise BadInputError(f"`time_s`: call {int(possible.any(axis=1).argmin())} can have no setting")
        settings = time_s.shape[1]
        other = ~np.eye(settings, dtype=bool)

        def pairs(value: FloatArray | float) -> FloatArray:
            return np.where(other, np.broadcast_to(np.asarray(value, dtype=np.float64), (settings, settings)), 0.0)

        def padded(value: FloatArray) -> FloatArray:
            dearest = np.where(possible, np.abs(value), 0.0).max(axis=1).sum()
            return np.where(possible, value, IMPOSSIBLE * dearest)

        quick = np.zeros((settings, settings), dtype=bool)
        return cls(
            np.where(possible, time_s, 0.0),
            padded(energy_j),
            padded(weight_s),
            stay_s,
            max(stay_s, stay_s if slow_stay_s is None else slow_stay_s),
            quick if slow is None else slow & other,
            pairs(switch_s),
            pairs(switch_j),
            pairs(off_s),
        )

    @property
    def calls(self) -> int:
        """How many calls a round has."""
        return len(self.time_s)

    @property
    def settings(self) -> int:
        """How many settings there are."""
        return int(self.time_s.shape[1])

    @cached_property
    def ends_s(self) -> FloatArray:
        """Time of the calls before each call were all at one setting; shape (calls + 1, settings)."""
        return np.concatenate([np.zeros((1, self.settings)), np.cumsum(self.time_s, axis=0)])

    @cached_property
    def lateness(self) -> Lateness | None:
        """What switches that are not on time change; ``None`` where all are."""
        return Lateness.of(self) if self.off_s.any() else None

    def stays(self, setting: IndexArray) -> list[Stay]:
        """The stays of a schedule, given the setting of each call; one that goes on over the end comes last."""
        changes = np.flatnonzero(setting != np.roll(setting, 1)).tolist()
        if not changes:
            return [Stay(0, self.calls, int(setting[0]))]
        ends = [*changes[1:], changes[0] + self.calls]
        return [Stay(first, end, int(setting[first])) for first, end in zip(changes, ends, strict=True)]

    def lasts_s(self, stay: Stay) -> float:
        """How long a stay lasts."""
        ends = self.ends_s[:, stay.setting]
        over = max(0, stay.end - self.calls)
        return float(ends[min(stay.end, self.calls)] - ends[stay.first] + ends[over])

    def keeps(self, setting: IndexArray) -> bool:
        """Whether every stay lasts long enough."""
        stays = self.stays(setting)
        if len(stays) == 1:
            return True
        for stay, after in zip(stays, [*stays[1:], stays[0]], strict=True):
            least_s = self.slow_stay_s if self.slow[stay.setting, after.setting] else self.stay_s
            if self.lasts_s(stay) < least_s:
                return False
        return True

    def totals(self, setting: IndexArray) -> Totals:
        """What a schedule takes, with its switches, given the setting of each call."""
        call = np.arange(self.calls)
        switching = self.switching(setting)
        columns = self.time_s, self.weight_s, self.energy_j
        return Totals(*(
            float(column[call, setting].sum()) + float(added.sum()) for column, added in zip(columns, switching, strict=True)
        ))  # fmt: skip

    def switching(self, setting: IndexArray) -> Added:
        """What the switch before each call adds; nothing where there is none."""
        before = np.roll(setting, 1)
        switched = np.flatnonzero(before != setting)
        pairs = before[switched], setting[switched]
        added = np.zeros((3, self.calls))
        added[:, switched] = self.switch_s[pairs], self.switch_s[pairs], self.switch_j[pairs]
        if self.lateness is not None:
            added[:, switched] += self.lateness.at(switched, *pairs)
        return Added(*added)


class Added(NamedTuple):
    """What switches add, one entry each."""

    time_s: FloatArray
    weight_s: FloatArray
    energy_j: FloatArray


@dataclass(frozen=True, eq=False)
class Lateness:
    """What calls near a change take in a second at each setting, by which late and early switches are judged.

    A switch that is late by d leaves the calls after the change at the old setting for d; one that is early runs those
    before it at the new one, for what would have taken d at the old. Calls within the mean of d count, at their mean rate.

    Attributes:
        off_s: mean of the time by which switches are late, and of that by which they are early: half of the mean deviation.
        after: of the calls after each change: time, weight and energy at each setting, each (calls, settings).
        before: the same of those before it.
    """

    off_s: FloatArray
    after: tuple[FloatArray, FloatArray, FloatArray]
    before: tuple[FloatArray, FloatArray, FloatArray]

    @classmethod
    def of(cls, work: SwitchedWork) -> Self:
        """The lateness of some work's switches."""
        shortest_s = np.where(work.time_s > 0.0, work.time_s, np.inf).min(axis=1)  # a window of it is never gone through
        clock = np.concatenate([[0.0], np.cumsum(shortest_s)])
        whole = clock[-1]
        window = min(float(work.off_s.max()), 0.5 * whole)
        columns = (work.time_s, work.weight_s, work.energy_j)
        sums = [np.concatenate([np.zeros((1, work.settings)), np.cumsum(column, axis=0)]) for column in columns]

        def at(moments: FloatArray, total: FloatArray) -> FloatArray:
            rounds, within = np.divmod(moments, whole)
            place = np.minimum(np.searchsorted(clock, within, side="right") - 1, work.calls - 1)
            part = (within - clock[place]) / (clock[place + 1] - clock[place])
            return np.asarray(rounds[:, None] * total[-1] + total[place] + part[:, None] * (total[place + 1] - total[place]))

        begin = clock[:-1]
        after = tuple(at(begin + window, total) - at(begin, total) for total in sums)
        before = tuple(at(begin, total) - at(begin - window, total) for total in sums)
        return cls(0.5 * work.off_s, (after[0], after[1], after[2]), (before[0], before[1], before[2]))

    def at(self, call: IndexArray, before: IndexArray, after: IndexArray) -> Added:
        """What changes before some calls add, from one setting to another."""
        off_s = self.off_s[before, after]
        time_after, time_before = self.after[0], self.before[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            late = np.nan_to_num(off_s / time_after[call, before])  # fraction of the calls after that run as before
            early = np.nan_to_num(off_s / time_before[call, before])  # of those before that run as after
        added = [
            late * (of_after[call, before] - of_after[call, after])
            + early * (of_before[call, after] - of_before[call, before])
            for of_after, of_before in zip(self.after, self.before, strict=True)
        ]
        return Added(*added)
