"""Work whose calls follow each other in a loop, each at some setting, where settings take time to change.

    call        0   1   2   3   4   5   6   7   0 ...
    setting     A   A   A   B   B   B   B   A   A
    stay               |-------------|               lasts at least the least stay; the one at A continues over the end

A switch is asked for ahead of time, so that on average it arrives between two calls. What remains of it is a stall, some
energy, and, where its latency varies, calls on either side that run at the other setting for a while.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError

IMPOSSIBLE = 1e3
"""Times the whole work at its dearest: what a call counts at a setting that it cannot have."""


ROUNDING = 1e-12


_SIXTHS = (0.278, 0.893, 1.829)
"""The first, third and fifth sixth of the distance of a normal variable from its mean, whose own mean is 1."""


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
        off_s: mean time by which switches to a setting are late or early, half of it each; shape (settings,).
        slow_off_s: the same of those that take long.
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
    slow_off_s: FloatArray

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
        slow_off_s: FloatArray | float | None = None,
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
        slow_off_s = off_s if slow_off_s is None else slow_off_s
        slow_stay_s = max(stay_s, stay_s if slow_stay_s is None else slow_stay_s)
        if slow_stay_s == stay_s and not (np.any(off_s) or np.any(slow_off_s)):  # they ask for no more than quick changes
            slow = None
        return cls(
            np.where(possible, time_s, 0.0),
            padded(energy_j),
            padded(weight_s),
            stay_s,
            slow_stay_s,
            quick if slow is None else slow & other,
            pairs(switch_s),
            pairs(switch_j),
            np.broadcast_to(np.asarray(off_s, dtype=np.float64), settings),
            np.broadcast_to(np.asarray(slow_off_s, dtype=np.float64), settings),
        )

    def only(self, kept: IndexArray) -> SwitchedWork:
        """The same work at some of the settings."""
        pairs = np.ix_(kept, kept)
        fewer = SwitchedWork(
            self.time_s[:, kept],
            self.energy_j[:, kept],
            self.weight_s[:, kept],
            self.stay_s,
            self.slow_stay_s,
            self.slow[pairs],
            self.switch_s[pairs],
            self.switch_j[pairs],
            self.off_s[kept],
            self.slow_off_s[kept],
        )
        for name, late in (("lateness", self.lateness), ("slow_lateness", self.slow_lateness)):
            fewer.__dict__[name] = None if late is None else late.only(kept)  # of the same windows
        return fewer

    @property
    def any_slow(self) -> bool:
        """Whether any change takes long, and is possible."""
        return bool(self.slow.any()) and np.isfinite(self.slow_stay_s)

    @property
    def is_free(self) -> bool:
        """Whether settings may change with every call, at no cost."""
        longest_s = max(self.stay_s, self.slow_stay_s if self.slow.any() else 0.0)
        free = not (self.switch_s.any() or self.switch_j.any()) and self.lateness is None and self.slow_lateness is None
        return free and longest_s <= float(np.where(self.time_s > 0.0, self.time_s, np.inf).min())

    def without_slow(self) -> SwitchedWork:
        """The same work with no changes that take long."""
        return replace(self, slow_stay_s=np.inf)

    def without_changes(self) -> SwitchedWork:
        """The same work at one setting throughout."""
        return replace(self, slow=~np.eye(self.settings, dtype=bool), slow_stay_s=np.inf)

    @cached_property
    def groups(self) -> list[IndexArray]:
        """The settings between which changes are quick."""
        _, group = np.unique(self.slow, axis=0, return_inverse=True)
        return [np.flatnonzero(group.ravel() == each) for each in range(int(group.max()) + 1)]

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
        """What quick switches that are not on time change; ``None`` where all are."""
        return Lateness.of(self, self.off_s) if self.off_s.any() else None

    @cached_property
    def slow_lateness(self) -> Lateness | None:
        """The same of those that take long."""
        return Lateness.of(self, self.slow_off_s) if self.slow_off_s.any() else None

    def stays(self, setting: IndexArray) -> list[Stay]:
        """The stays of a schedule, given the setting of each call; one that continues over the end comes last."""
        first, end, own = self._stays(setting)
        return [Stay(*each) for each in zip(first.tolist(), end.tolist(), own.tolist(), strict=True)]

    def _stays(self, setting: IndexArray) -> tuple[IndexArray, IndexArray, IndexArray]:
        first = np.flatnonzero(setting != np.roll(setting, 1))
        if not len(first):
            return np.array([0]), np.array([self.calls]), setting[:1]
        return first, np.append(first[1:], first[0] + self.calls), setting[first]

    def _lasts_s(self, first: IndexArray, end: IndexArray, setting: IndexArray) -> FloatArray:
        ends, over = self.ends_s, np.maximum(end - self.calls, 0)
        return np.asarray(ends[np.minimum(end, self.calls), setting] - ends[first, setting] + ends[over, setting])

    def longest(self, setting: IndexArray) -> Stay:
        """The longest stay of a schedule."""
        stays = self._stays(setting)
        which = int(self._lasts_s(*stays).argmax())
        return Stay(*(int(each[which]) for each in stays))

    def keeps(self, setting: IndexArray) -> bool:
        """Whether every stay lasts long enough."""
        stays = self._stays(setting)
        if len(stays[0]) == 1:
            return True
        own = stays[2]
        least_s = np.where(self.slow[own, np.roll(own, -1)], self.slow_stay_s, self.stay_s)
        return bool((self._lasts_s(*stays) >= least_s - ROUNDING * self.ends_s[-1].max()).all())

    def totals(self, setting: IndexArray, cut: int | None = None) -> Totals:
        """What a schedule takes, with its switches, given the setting of each call.

        Args:
            setting: of each call, shape (calls,).
            cut: the call before which a switch is free, if any.
        """
        call = np.arange(self.calls)
        switching = self.switching(setting)
        if cut is not None:
            for added in switching:
                added[cut] = 0.0
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
        slow = self.slow[pairs]
        for late, ours in ((self.lateness, ~slow), (self.slow_lateness, slow)):
            if late is not None:
                added[:, switched[ours]] += late.at(switched[ours], pairs[0][ours], pairs[1][ours])
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
    before it at the new one, for what would have taken d at the old. The nearer a call is, the more often it is concerned:
    rates are those of three windows, of d at the sixths of its distribution, which is taken to be normal.

    Attributes:
        off_s: mean time by which switches to a setting are off, late or early; shape (settings,).
        after: of the calls after each change: time, weight and energy at each setting, each (calls, settings). Calls that
            cannot have a setting count as at their dearest.
        before: the same of those before it.
        spared_after: as ``after``, with nothing for calls that cannot have the setting: they would have spared nothing.
        spared_before: the same of those before it.
    """

    off_s: FloatArray
    after: tuple[FloatArray, FloatArray, FloatArray]
    before: tuple[FloatArray, FloatArray, FloatArray]
    spared_after: tuple[FloatArray, FloatArray, FloatArray]
    spared_before: tuple[FloatArray, FloatArray, FloatArray]

    @classmethod
    def of(cls, work: SwitchedWork, off_s: FloatArray) -> Self:
        """The lateness of some work's switches, given by how much they are off."""
        shortest_s = np.where(work.time_s > 0.0, work.time_s, np.inf).min(axis=1)  # a window of it is never gone through
        clock = np.concatenate([[0.0], np.cumsum(shortest_s)])
        whole = clock[-1]

        def at(moments: FloatArray, total: FloatArray) -> FloatArray:
            rounds, within = np.divmod(moments, whole)
            place = np.minimum(np.searchsorted(clock, within, side="right") - 1, work.calls - 1)
            part = (within - clock[place]) / (clock[place + 1] - clock[place])
            return np.asarray(rounds[:, None] * total[-1] + total[place] + part[:, None] * (total[place + 1] - total[place]))

        begin = clock[:-1]
        windows = [min(part * float(off_s.max()), 0.5 * whole) for part in _SIXTHS]

        def near(column: FloatArray, side: int) -> FloatArray:
            total = np.concatenate([np.zeros((1, work.settings)), np.cumsum(column, axis=0)])
            rates = [side * (at(begin + side * window, total) - at(begin, total)) for window in windows]
            return np.asarray(np.sum(rates, axis=0))

        possible = work.time_s > 0.0
        spared = [np.where(possible, column, 0.0) for column in (work.time_s, work.weight_s, work.energy_j)]
        taken = [np.where(possible, column, column.max(axis=1, keepdims=True)) for column in spared]
        return cls(off_s, *(
            (near(time_s, side), near(weight_s, side), near(energy_j, side))
            for time_s, weight_s, energy_j in (taken, spared) for side in (1, -1)
        ))  # fmt: skip

    def only(self, kept: IndexArray) -> Lateness:
        """The same of some settings."""
        sides = self.after, self.before, self.spared_after, self.spared_before
        return Lateness(self.off_s[kept], *((t[:, kept], w[:, kept], e[:, kept]) for t, w, e in sides))

    @cached_property
    def per_after(self) -> FloatArray:
        """One over the time of the calls after each change, 0 where they take none."""
        return _inverse(self.after[0])

    @cached_property
    def per_before(self) -> FloatArray:
        """The same of the calls before each change."""
        return _inverse(self.before[0])

    def at(self, call: IndexArray, before: IndexArray, after: IndexArray) -> Added:
        """What changes before some calls add, from one setting to another."""
        off_s = 0.5 * self.off_s[after]
        late = off_s * self.per_after[call, before]  # fraction of the calls after that run as before
        early = off_s * self.per_before[call, before]  # of those before that run as after
        added = [
            late * (of_after[call, before] - spared_after[call, after])
            + early * (of_before[call, after] - spared_before[call, before])
            for of_after, of_before, spared_after, spared_before in zip(
                self.after, self.before, self.spared_after, self.spared_before, strict=True
            )
        ]
        return Added(*added)


def _inverse(values: FloatArray) -> FloatArray:
    return np.asarray(np.divide(1.0, values, out=np.zeros_like(values), where=values > 0.0))
