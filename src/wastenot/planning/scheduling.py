"""From a plan's costs to its schedule: what of the saving is left where settings take time to change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import InfeasibleError
from wastenot.core.setting import AUTO, Setting
from wastenot.frontiers.schedule import Schedule as Found, Scheduler
from wastenot.frontiers.switched_work import Stay, SwitchedWork, Totals
from wastenot.planning.headline import LEVEL
from wastenot.planning.noise.expectation import errors_of_ratio, excess_of_calls
from wastenot.planning.objective import DEFAULT_CONFIDENCE, Objective
from wastenot.planning.objective_kinds import Scope
from wastenot.planning.schedule import MarkerTime, Rung, Schedule, Segment
from wastenot.planning.switching import SwitchTime
from wastenot.planning.timeline import Timeline, timeline

if TYPE_CHECKING:
    from wastenot.planning.noise.posteriors import Posteriors
    from wastenot.planning.planner import Planner

RUNGS = 6  # between a schedule and the default clocks, at most
GAP = 0.001
ROUGH_GAP = 0.0015  # where many schedules are only compared
_MOST_TIGHTENINGS = 5
_IN_TIME = 1.645  # standard deviations: 95 % of requests are in effect before the next one
_SHOWN = 1e-4  # fraction of the time between two rungs, at least


def best_rungs(planner: Planner, objective: Objective, scope: Scope, switchings: Sequence[SwitchTime]) -> list[Rung]:
    """The schedule at each of several switching times, without the faster ones.

    Raises:
        InfeasibleError: none is as fast as asked for at one of them.
    """
    first = Scheduling(planner, objective, scope, switchings[0], 0.0, None, ROUGH_GAP)
    rungs = []
    for switching in switchings:
        each = replace(first, switching=switching)
        for name in _WHATEVER_SWITCHING:
            if name in first.__dict__:
                each.__dict__[name] = first.__dict__[name]
        found = each.objective.least(each)
        rungs.append(each.rung(found.setting))
        first.__dict__.update({name: each.__dict__[name] for name in _WHATEVER_SWITCHING if name in each.__dict__})
    return rungs


_WHATEVER_SWITCHING = ("corrects", "costs_by_row", "rows", "settings", "line", "slow", "_doubted", "_in_effect")
"""What a schedule is made of that does not depend on how long switches take."""


@dataclass(eq=False)
class Scheduling:
    """A plan's costs as its schedule is made from them, and how sure they are; what is asked for is computed once.

    Attributes:
        planner: of the plan's granularity.
        objective: of the plan.
        scope: of the plan.
        switching: how long the device takes.
        min_dwell_s: the least time between two requests.
        memory_mhz: memory clock in effect by default, where it is known.
        gap: to the bound, at which a schedule is good enough.
    """

    planner: Planner
    objective: Objective
    scope: Scope
    switching: SwitchTime
    min_dwell_s: float
    memory_mhz: float | None
    gap: float = GAP

    @cached_property
    def corrects(self) -> bool:
        """Whether the costs are corrected for noise."""
        return self.planner.corrects(self.objective)

    @cached_property
    def costs_by_row(self) -> tuple[FloatArray, FloatArray]:
        """Time and energy of a call at each row."""
        costs = self.planner.believed.costs if self.corrects else self.planner.costs
        return costs.time_s, costs.energy_j

    @cached_property
    def rows(self) -> IndexArray:
        """The row of each kernel at each setting, −1 where it was not measured there; auto first. (settings, kernels)."""
        costs = self.planner.costs
        rows = np.full((int(costs.setting_index.max()) + 1, len(costs.kernels)), -1)
        rows[costs.setting_index, costs.kernel] = np.arange(len(costs.kernel))
        return rows

    @cached_property
    def settings(self) -> list[Setting]:
        """That rows are of, auto first."""
        return [AUTO, *(self.planner.costs.setting(int(row[row >= 0][0])) for row in self.rows[1:])]

    @cached_property
    def line(self) -> Timeline:
        """An iteration's calls in order, and the pieces between which a setting may change."""
        costs = self.planner.costs
        return timeline(costs.kernels, self.planner.granularity, self.costs_by_row[0][costs.start[:-1]])

    def _table(self, values: FloatArray) -> FloatArray:
        """A value of rows by setting and kernel, infinite where it was not measured."""
        return np.where(self.rows >= 0, values[np.maximum(self.rows, 0)], np.inf)

    @cached_property
    def slow(self) -> NDArray[np.bool_]:
        """Whether a change changes the memory clock, too; shape (settings, settings)."""
        memory = np.array([-1.0 if each.memory_mhz is None else each.memory_mhz for each in self._in_effect])
        return np.asarray(memory[:, None] != memory)

    @cached_property
    def work(self) -> SwitchedWork:
        """Pieces with their costs at each setting, and what switches cost."""
        time_s, energy_j = (self._table(each) for each in self.costs_by_row)
        if self.scope == "local" and self.objective.max_slowdown is not None:
            allowed = (1.0 + self.objective.max_slowdown) * time_s[:1]
            time_s = np.where(time_s <= allowed, time_s, np.inf)
            if not np.isfinite(time_s).any(axis=0).all():
                raise InfeasibleError("no schedule is that fast everywhere")
        switching = self.switching
        late = math.exp(_IN_TIME * switching.jitter)
        stay_s = max(self.min_dwell_s, late * switching.core_s)
        mean_w = float(energy_j[0] @ self.planner.costs.count) / float(time_s[0] @ self.planner.costs.count)
        pause_s, latency_s = self._pairs(switching.pause_s), self._pairs(switching.latency_s)
        off_s = _mean_deviation(switching.jitter)
        return SwitchedWork.of(
            self.line.of_pieces(time_s).T,
            self.line.of_pieces(energy_j).T,
            stay_s=stay_s,
            slow_stay_s=max(stay_s, late * switching.memory_s),
            slow=self.slow,
            switch_s=pause_s,
            switch_j=switching.energy_j + mean_w * pause_s,
            off_s=off_s * np.where(self.slow, 0.0, latency_s).max(axis=0),
            slow_off_s=off_s * np.where(self.slow, latency_s, 0.0).max(axis=0),
        )

    def _pairs(self, of: Callable[[Setting, Setting], float]) -> FloatArray:
        """A value of each change from one setting to another."""
        return np.array([[of(before, after) for after in self._in_effect] for before in self._in_effect])

    @cached_property
    def _in_effect(self) -> list[Setting]:
        """The settings with the memory clock that auto is known to be."""
        return [
            each if each.memory_mhz is not None or self.memory_mhz is None else replace(each, memory_mhz=self.memory_mhz)
            for each in self.settings
        ]

    @cached_property
    def scheduler(self) -> Scheduler:
        """The solver of that work."""
        return Scheduler(self.work)

    @property
    def auto_s(self) -> float:
        """Time of an iteration at the default clocks."""
        return float(self.work.ends_s[-1, 0])

    # ---- errors ----------------------------------------------------------------------------------------------

    @cached_property
    def _doubted(self) -> tuple[float, float]:
        """Half of the time and energy by which anything but auto may be expected too low."""
        if not self.corrects:
            return 0.0, 0.0
        too_low = self.planner.optimism(self.objective)
        return 0.5 * too_low.time_s, 0.5 * too_low.energy_j

    def margin_s(self, setting: IndexArray, slowdown: float) -> float:
        """How far below its budget a schedule must stay, to keep it with the confidence.

        Errors of one kernel at several settings are taken to be one error, which is the worst that they can be.
        """
        if not self.corrects:
            return 0.0
        posteriors, runs, kernel, base, rows = self._runs(setting)
        _, variance, common = excess_of_calls(posteriors.time_s, base, rows, slowdown)
        doubted_s = self._doubted[0] if setting.any() else 0.0
        own = float(np.square(np.bincount(kernel, runs * np.sqrt(variance))).sum())
        together = np.square(runs @ common).sum()
        z = NormalDist().inv_cdf(self.objective.confidence or DEFAULT_CONFIDENCE)
        return doubted_s + z * math.sqrt(own + float(together) + doubted_s**2)

    def _runs(self, setting: IndexArray) -> tuple[Posteriors, FloatArray, IndexArray, IndexArray, IndexArray]:
        """How often each kernel runs at each setting: runs, kernels, and rows of the posteriors, at auto and then."""
        posteriors = self.planner.posteriors
        assert posteriors is not None
        counts = self.line.counts(setting, *self.rows.shape)
        had, kernel = np.nonzero(counts)
        rows = np.where(self.rows[had, kernel] >= 0, self.rows[had, kernel], self.rows[0, kernel])
        return posteriors, counts[had, kernel], kernel, posteriors.index(self.rows[0, kernel]), posteriors.index(rows)

    def with_intervals(self, rung: Rung, setting: IndexArray) -> Rung:
        """The rung of a schedule with what its errors leave of its changes, those of one kernel taken for one error."""
        if not self.corrects:
            return rung
        posteriors, runs, kernel, base, rows = self._runs(setting)
        doubted = self._doubted if setting.any() else (0.0, 0.0)
        z = NormalDist().inv_cdf(0.5 + 0.5 * LEVEL)
        intervals = []
        for posterior, change, doubt in zip(
            (posteriors.time_s, posteriors.energy_j), (rung.time_change, rung.energy_change), doubted, strict=True
        ):
            variance, common = errors_of_ratio(posterior, base, rows, 1.0 + change)
            own = np.square(np.bincount(kernel, runs * np.sqrt(np.maximum(variance, 0.0)))).sum()
            error = math.sqrt(float(own + np.square(runs @ common).sum()) + doubt**2) / float(runs @ posterior.mean[base])
            intervals.append((change - z * error, change + z * error))
        return rung.model_copy(update={"time_change_interval": intervals[0], "energy_change_interval": intervals[1]})

    # ---- choosing --------------------------------------------------------------------------------------------

    def schedule(self) -> Schedule | None:
        """The schedule with its rungs; ``None`` where none is as fast as asked for."""
        try:
            found = self.objective.least(self)
        except InfeasibleError:
            return None
        rungs = [self.rung(each) for each in self._rungs(found)]
        rungs[0] = self.with_intervals(rungs[0], found.setting)
        slowdown = self.objective.max_slowdown
        bound = min(found.lower_bound_j + (self._doubted[1] if found.setting.any() else 0.0), rungs[0].energy_j)
        return Schedule(
            switching=self.switching,
            min_dwell_s=self.min_dwell_s,
            max_slowdown=rungs[0].time_change if slowdown is None else slowdown,
            markers=self._markers(),
            rungs=tuple(rungs),
            lower_bound_j=bound,
            gap=(rungs[0].energy_j - bound) / rungs[0].energy_j,
        )

    def least_energy(self, max_slowdown: float | None) -> Found:
        """The schedule of least energy that keeps a slowdown."""
        if max_slowdown is None:
            return self.scheduler.least_energy(math.inf, GAP)
        return self._kept(max_slowdown, lambda budget_s: self.scheduler.least_energy(budget_s, self.gap))

    def least_edp(self, exponent: float, max_slowdown: float | None) -> Found:
        """A schedule of low energy · time^exponent that keeps a slowdown."""
        if max_slowdown is None:
            return self.scheduler.least_edp(exponent)
        return self._kept(max_slowdown, lambda budget_s: self.scheduler.least_edp(exponent, budget_s))

    def least_time(self) -> Found:
        """The fastest schedule."""
        return self.scheduler.least_time()

    def changes(self, found: Found) -> tuple[float, float]:
        """Time and energy of a schedule, as changes from auto."""
        auto = self._auto
        return found.totals.time_s / auto.time_s - 1.0, found.totals.energy_j / auto.energy_j - 1.0

    @cached_property
    def _auto(self) -> Totals:
        return self.work.totals(np.zeros(self.work.calls, dtype=np.intp))

    def _kept(self, slowdown: float, ask: Callable[[float], Found]) -> Found:
        """The answer within a budget so far below the slowdown that it is kept with the confidence."""
        whole = (1.0 + slowdown) * self.auto_s
        margin, bound = 0.0, 0.0
        for _ in range(_MOST_TIGHTENINGS):
            try:
                found = ask(whole - margin)
            except InfeasibleError:
                break
            bound = bound or found.lower_bound_j
            needed = self.margin_s(found.setting, slowdown)
            if found.totals.weight_s <= whole - needed:
                luck_j = self._doubted[1] if found.setting.any() else 0.0
                time_change, energy_change = self.changes(found)
                if self.objective.refuses(time_change, energy_change + luck_j / self._auto.energy_j):
                    break
                return Found(found.setting, found.totals, min(bound, found.totals.energy_j))
            margin = max(1.02 * needed, margin + 0.2 * needed)
        if slowdown >= 0.0:
            auto_j = self._auto.energy_j
            return Found(np.zeros(self.work.calls, dtype=np.intp), self._auto, min(bound or auto_j, auto_j))
        raise InfeasibleError("no schedule is that fast")

    def _rungs(self, found: Found) -> list[IndexArray]:
        """The schedule, ever faster ones, and the default clocks."""
        auto = np.zeros(self.work.calls, dtype=np.intp)
        rungs, last_s = [found.setting], found.totals.time_s
        for part in np.linspace(1.0, 0.0, RUNGS + 2)[1:-1].tolist():
            budget = self.auto_s + part * (found.totals.time_s - self.auto_s)
            if found.totals.time_s <= self.auto_s * (1.0 + _SHOWN):
                break
            step = self.scheduler.least_energy(budget, 0.01)
            if step.totals.time_s < last_s - _SHOWN * self.auto_s and step.setting.any():
                rungs.append(step.setting)
                last_s = step.totals.time_s
        if rungs[-1].any():
            rungs.append(auto)
        return rungs

    # ---- describing ------------------------------------------------------------------------------------------

    def _marker_of(self) -> IndexArray:
        """For each piece the last marker at or before its first call, of several before one call the first."""
        calls = np.array([marker.call for marker in self.line.markers])
        last = calls[np.searchsorted(calls, self.line.first, side="right") - 1]
        return np.searchsorted(calls, last)

    def _markers(self) -> tuple[MarkerTime, ...]:
        time_s = self.costs_by_row[0][self.planner.costs.start[:-1]][self.line.kernel]
        ends = np.concatenate([[0.0], np.cumsum(time_s)])
        return tuple(MarkerTime(name=each.name, after_s=float(ends[each.call])) for each in self.line.markers)

    def _early_s(self, before: int, after: int) -> float:
        """How long before a change it is to be asked for, so that on average it is in effect on time."""
        median_s = self.switching.latency_s(self._in_effect[before], self._in_effect[after])
        return median_s * math.exp(0.5 * self.switching.jitter**2)

    def rung(self, setting: IndexArray) -> Rung:
        """A setting for each piece, as a rung; shape (pieces,)."""
        work, stays = self.work, self.work.stays(setting)
        parts: list[Stay] = []
        for stay in stays:
            if stay.end > work.calls and stay.first > 0:
                parts += [Stay(0, stay.end - work.calls, stay.setting), Stay(stay.first, work.calls, stay.setting)]
            else:
                parts.append(stay)
        parts.sort()
        piece = np.arange(work.calls)
        switching = work.switching(setting)
        times = work.time_s[piece, setting] + switching.time_s
        energies = work.energy_j[piece, setting] + switching.energy_j
        marker_of = self._marker_of()
        # time from the marker to the piece, at this rung's settings
        kernel_s = self._table(self.costs_by_row[0])[setting[self.line.piece], self.line.kernel]
        clock = np.concatenate([[0.0], np.cumsum(kernel_s)])
        waited = np.cumsum(switching.time_s) - switching.time_s  # by switches before each piece
        optimistic = self._doubted if setting.any() else (0.0, 0.0)
        luck_s, luck_j = 1.0 + optimistic[0] / times.sum(), 1.0 + optimistic[1] / energies.sum()
        segments = []
        for part in parts:
            before, own = int(setting[part.first - 1]), self.settings[part.setting]
            marker = self.line.markers[int(marker_of[part.first])]
            early = 0.0
            if before != part.setting:
                early = self._early_s(before, part.setting)
            here = slice(part.first, part.end)
            own_s = clock[self.line.first[part.first]] - clock[marker.call]
            waited_s = waited[part.first] - waited[min(self.line.piece[marker.call], part.first)]
            segments.append(
                Segment(
                    begins=marker.name,
                    offset_s=float(own_s + waited_s),
                    **asdict(own),
                    early_s=early,
                    time_s=luck_s * float(times[here].sum()),
                    energy_j=luck_j * float(energies[here].sum()),
                )
            )
        time_s, energy_j = math.fsum(each.time_s for each in segments), math.fsum(each.energy_j for each in segments)
        auto_j = float(work.energy_j[:, 0].sum())
        return Rung(
            segments=tuple(segments),
            time_s=time_s,
            energy_j=energy_j,
            time_change=time_s / self.auto_s - 1.0,
            energy_change=energy_j / auto_j - 1.0,
        )


def _mean_deviation(jitter: float) -> float:
    """Mean time by which switches are late or early that are asked for ahead of time by their mean latency, by its median.

    Args:
        jitter: standard deviation of the logarithm of the latency, which is taken to be normal.
    """
    return 2.0 * math.exp(0.5 * jitter**2) * math.erf(jitter / math.sqrt(8.0))
