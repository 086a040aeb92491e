"""Plans that a driver can carry out: a setting lasts as long as it takes to change, and a little time is kept in reserve.

    planned for each instruction   |1400|1700|1400|1700|1400|     instructions shorter than a switch
    as a driver can do it          |     1600     |   1500  |     settings that last, within the same deadline

    1  `of`        replan the graph with a reserve on each instruction that is slowed down; times and gaps of that plan
    2  `first`     on each rank a dynamic programme (:mod:`wastenot.frontiers.stays`): the cheapest settings that last, with
                   no instruction slower than in 1; some become faster, and time is won
    3  `on_time`   a late or early switch slows critical instructions down: raise the slower side until the deadline is kept
    4  `improved`  spend the time won where it saves most energy per second: slow stays down while the deadline is kept
    5  `exactly`   the plan of these settings, without reserve, checked against the deadline as a fraction

Ranks are coupled by dependencies alone, so 2 takes them one by one; 3 to 5 look at the longest path of the whole graph. No
step proves that it found the best: :func:`with_switching` tries several margins and two plans to begin with, and keeps the
best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.core.blas import single_threaded
from wastenot.core.errors import InfeasibleError
from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import Frontier, choice
from wastenot.frontiers.graph_rounding import Effort
from wastenot.frontiers.graph_times import Dag
from wastenot.frontiers.stays import Start, Stays
from wastenot.frontiers.switched_work import SwitchedWork
from wastenot.pipelines.model.iteration_graph import pipeline_graph
from wastenot.pipelines.model.profile import PipelineProfile, listed_ways
from wastenot.pipelines.plan.planner import PlannedPipeline, replanned
from wastenot.planning.switching import SwitchTime

RESERVE = 0.004
"""Fraction of an instruction's time that one which is slowed down may take longer without the deadline being missed.

No more than :data:`_LATE` of a switch, for that is about what one that is late or early costs. Set by hand, once raised from
0.25 %: with it 63 of 64 simulated jobs kept their slowdown to 0.1 points where executions vary by 0.3 %
(`docs/judged-pipelines.md`)."""

_IN_TIME = 1.645
"""Standard deviations: the 95 % quantile of a normal variable. Latencies are log-normal, so that a stay of exp(1.645 ·
jitter) medians outlasts 95 % of the switches to it."""

_OFF = 0.3
"""Standard deviations of a switch's latency during which a fast instruction meets a slow clock, on average.

Drivers request a faster clock 1 standard deviation early and a slower one 0.5 late (``rank_execution.CAUTION``). With Z
normal, the faster one comes too late by E[(Z − 1)⁺] = 0.08 and the slower one too early by E[(Z − 0.5)⁺] = 0.20: 0.28 for
a slow stay, which has one switch of each. It is charged to both, which is on the safe side."""

_UNKNOWN = 0.2
"""Of its speed that an instruction loses at a setting that it was not measured at; chosen by hand."""

_LATE = 0.2
"""Of a switch's latency: one that comes late by all of it leaves the instruction at a setting that is slower by a fifth or
so. Chosen by hand."""

_MARGINS = (0.0, 1.645, 6.0, 12.0, 30.0, 100.0, 1e6)
"""Standard deviations by which ways may be slower than they seem next to the default clocks, tried until the plan is as sure
to keep its slowdown as was asked; at the last one only the default clocks are left for what is critical. The second is the
95 % quantile for one way by itself, the others were chosen by hand."""

_STEPS = (1, 2, 4)  # settings by which a stay is slowed down at once; several, to get past one that saves nothing by itself
_MOST_PARTS = 30_000_000
"""Parts × plans that are tried while one is improved: about 10 s, but counted, so that a busy machine finds the same
plan."""


@single_threaded()
def with_switching(made: PlannedPipeline, switching: SwitchTime, *, reserve: float = RESERVE) -> PlannedPipeline:
    """The plan of a pipeline whose settings last as long as switching takes, within the same deadline.

    Where switching takes no time, the plan stays as it is; so do plans whose kernels have settings of their own inside
    instructions, and these note it.

    Args:
        made: the plan, as if switching took no time.
        switching: how long the device takes to switch.
        reserve: see :data:`RESERVE`; nothing is kept for instructions that are as fast as they can be.

    Raises:
        InfeasibleError: never but by rounding, as each instruction may be as fast as it can be.
    """
    if max(switching.core_s, switching.memory_s, switching.stall_s, switching.memory_stall_s) == 0.0:
        return made
    found: PlannedPipeline | None = None
    # Where no slowdown is allowed, margin 0 keeps that with an even chance at best, so that it is not worth trying.
    hopeless = made.plan.promise is not None and not made.plan.max_slowdown and made.plan.until_s is None
    for margin in _MARGINS[hopeless:]:
        for effort in (Effort(steps=0), None):  # a worse plan to begin with can end as the better one
            if (problem := _Problem.of(made, switching, reserve, margin, effort)) is None:
                break
            tried = problem.exactly(problem.improved(problem.on_time(problem.first())))
            found = tried if found is None else max(found, tried, key=_worth)
        if found is None or _worth(found)[0] >= 1.0:
            break
    if found is None:
        note = "settings change within instructions, planned as if switches between instructions took no time"
        plan = made.plan.model_copy(update={"notes": (*made.plan.notes, note)})
        return replace(made, plan=plan.sealed())
    plan = found.plan.model_copy(update={"switching": switching, "free": made.plan.predicted})
    return replace(found, plan=plan.sealed())


@dataclass(eq=False)
class _Problem:
    """What the settings of all instructions come to; arrays by part are of the schedule's instructions alone.

    Attributes:
        made: the plan to begin with.
        settings: in order of speed, slowest first.
        dag: of all parts, with their order.
        time_s: of each instruction at each setting, its reserve included; infinite where it cannot have it.
        cost_j: its energy less what its rank would draw waiting meanwhile.
        way: of each instruction at each setting in the plan's graph; −1 for none.
        part_time_s: of every part of the graph, in the plan with reserve.
        gap_s: from the begin of each instruction to that of the next on its rank.
        ranks: first instruction of each rank, and one past the last.
        within_s: the deadline.
        stay_s: least time at a setting.
        slow_stay_s: before it is left for another memory clock.
        slow: whether two settings differ in their memory clock.
        switch_j: what a switch costs, late or early as it comes.
        off_s: for so long, on average, an instruction beside a switch runs at the slower of both settings.
    """

    made: PlannedPipeline
    settings: Sequence[Setting]
    dag: Dag
    time_s: FloatArray
    cost_j: FloatArray
    way: IndexArray
    part_time_s: FloatArray
    gap_s: FloatArray
    ranks: IndexArray
    within_s: float
    stay_s: float
    slow_stay_s: float
    slow: BoolArray
    switch_j: FloatArray
    off_s: float

    @classmethod
    def of(
        cls, made: PlannedPipeline, switching: SwitchTime, reserve: float, margin: float, effort: Effort | None
    ) -> _Problem | None:
        """The problem of a plan; ``None`` where instructions have several settings inside."""
        graph, instructions = made.graph, made.schedule.instructions
        kinds = sorted(set(graph.kind[: len(instructions)].tolist()))
        ways = {
            kind: {points[i].choices[0]: i for i in range(len(points))} for kind in kinds for points in (graph.ways(kind),)
        }
        labels = {label for each in ways.values() for label in each}
        settings = sorted((each for each in labels if isinstance(each, Setting)), key=_speed)
        if len(settings) < len(labels):
            return None
        late_s = _LATE * max(switching.core_s, switching.memory_s)
        errors = made.profile.errors
        charges = {} if errors is None or margin == 0.0 else {key: errors.charge_s(key, margin) for key in errors.ways}
        padded = pipeline_graph(made.schedule, _with_reserve(made.profile, reserve, late_s, charges))
        iteration_s = made.profile.iteration_s
        until_s = None if made.plan.until_s is None else max(made.plan.until_s - iteration_s, 0.0)
        within = deadline_of(made)
        try:
            solved = padded.least_energy(max(within, padded.least_time().exact_time_s), until_s=until_s, effort=effort)
        except InfeasibleError:  # by rounding
            solved = padded.least_time()
        number = {setting: index for index, setting in enumerate(settings)}
        time_s = np.full((len(instructions), len(settings)), np.inf)
        cost_j, way = time_s.copy(), np.full(time_s.shape, -1, dtype=np.intp)
        waiting_w, keys = made.profile.waiting_w, list(made.profile.ways)
        for part, kind in enumerate(graph.kind[: len(instructions)].tolist()):
            points = graph.ways(kind)
            fastest_s = float(points.time_s.min())
            charge_s = charges.get(keys[kind])
            for setting, index in ways[kind].items():
                assert isinstance(setting, Setting)
                column, plain_s = number[setting], float(points.time_s[index])
                time_s[part, column] = plain_s if plain_s <= fastest_s else plain_s + min(reserve * plain_s, late_s)
                if charge_s is not None:
                    time_s[part, column] += charge_s[int(points[index].options[0])]
                cost_j[part, column] = float(points.energy_j[index]) - waiting_w * plain_s
                way[part, column] = index
        ranks = np.cumsum([0, *map(len, made.schedule.ranks)])
        gap_s = np.empty(len(instructions))
        for begin, end in pairwise(ranks.tolist()):
            starts = solved.start_s[begin:end]
            gap_s[begin : end - 1] = np.diff(starts)
            gap_s[end - 1] = max(solved.time_s + iteration_s - float(starts[-1] - starts[0]), 0.0)
        late = math.exp(_IN_TIME * switching.jitter)
        memory = np.array([-1.0 if each.memory_mhz is None else each.memory_mhz for each in settings])
        return cls(
            made,
            settings,
            Dag(len(graph), graph.edges, graph.delay_s),
            time_s,
            cost_j,
            way,
            solved.part_time_s.copy(),
            gap_s,
            ranks,
            max(float(within), solved.time_s) * (1.0 + 1e-12),
            late * switching.core_s,
            late * max(switching.core_s, switching.memory_s),
            memory[:, None] != memory,
            _switch_j(settings, switching, time_s, cost_j),
            _OFF * switching.jitter * switching.core_s,
        )

    def first(self) -> IndexArray:
        """Settings that last, with no instruction slower than planned; shape (instructions,)."""
        found = np.empty(len(self.time_s), dtype=np.intp)
        for begin, end in pairwise(self.ranks.tolist()):
            here = slice(begin, end)
            allowed = self.time_s[here] <= self.part_time_s[here, None] * (1.0 + 1e-9)
            allowed |= self.time_s[here] <= self.time_s[here].min(axis=1, keepdims=True)  # where a setting has several ways
            found[here] = self._lasting(here, allowed)
        return found

    def _lasting(self, here: slice, allowed: BoolArray) -> IndexArray:
        """The cheapest settings of a rank that last, of those allowed.

        A stay's length is that of gaps, from the begin of an instruction to that of the next, waiting included: a switch may
        happen while the rank waits. The schedule is a loop, since iterations follow each other. First it is solved with the
        loop cut open, where the stay across the cut may turn out too short; if so, once more for each setting of that stay,
        with half of the least stay on either side of the cut.
        """
        time_s, cost_j = self.time_s[here], self.cost_j[here]
        work = SwitchedWork.of(
            np.where(allowed, self.gap_s[here, None], np.inf),
            np.where(allowed, cost_j, np.inf),
            weight_s=np.where(allowed, time_s, np.inf),
            stay_s=self.stay_s,
            slow_stay_s=self.slow_stay_s,
            slow=self.slow,
            switch_j=self.switch_j,
        )
        stays, free = Stays(work), np.zeros(1)
        found = stays.cheapest(free).setting[0]
        if not work.keeps(found):
            lanes = np.flatnonzero(allowed.any(axis=0))
            starts = [Start(int(each), 0.5 * self.stay_s, 0.5 * self.stay_s) for each in lanes]
            closed = stays.cheapest(np.zeros(len(starts)), starts)
            if np.isfinite(closed.cost).any():
                found = closed.setting[int(closed.cost.argmin())]
        return np.asarray(found, dtype=np.intp)

    def improved(self, setting: IndexArray) -> IndexArray:
        """Spend what time is left where it saves most: stays are slowed down as far as the deadline is kept.

        Greedy by energy saved per second of longer work. A move fails at once if the stay's own instructions, given the
        earliest starts and latest ends as they are, would not be done in time; only the others take the longest path of the
        whole graph.
        """
        rows, left = np.arange(len(setting)), _MOST_PARTS // len(self.part_time_s)
        tried: set[tuple[int, int, int]] = set()
        begin_s, latest_s = self._room(setting)
        while left > 0:
            moves = []
            for begin, end in self._stays(setting):
                for step in _STEPS:
                    to = int(setting[begin]) - step
                    if to < 0 or (begin, end, to) in tried:
                        continue
                    gain = float((self.cost_j[rows[begin:end], setting[begin]] - self.cost_j[rows[begin:end], to]).sum())
                    if gain > 0.0 and np.isfinite(gain):
                        longer_s = float((self.time_s[begin:end, to] - self.time_s[begin:end, setting[begin]]).sum())
                        moves.append((gain / max(longer_s, 1e-12), begin, end, to))
            moved = False
            for _, begin, end, to in sorted(moves, reverse=True):
                if left == 0:
                    break
                if setting[begin] != setting[end - 1] or setting[begin] <= to:
                    continue  # another move was here
                at_s = np.maximum.accumulate(begin_s[begin:end] - _before(self.time_s[begin:end, to]))
                if (at_s + np.cumsum(self.time_s[begin:end, to]) > latest_s[begin:end] * (1.0 + 1e-12)).any():
                    tried.add((begin, end, to))  # too long by itself, whatever becomes of the others
                    continue
                changed, left = setting.copy(), left - 1
                changed[begin:end] = to
                if self.keeps(changed):
                    setting, moved = changed, True
                    begin_s, latest_s = self._room(setting)
                else:
                    tried.add((begin, end, to))
            if not moved:
                break
        return setting

    def on_time(self, setting: IndexArray) -> IndexArray:
        """Without switches that keep what is critical from being on time: the slower side is raised to the faster.

        One stay each time, that with the least energy added per second no longer lost, until the makespan is within the
        deadline.
        """
        setting = setting.copy()
        for _ in range(len(setting)):
            times, lost_s = self._times(setting)
            placed = times[self.dag.order]
            begin = self.dag.earliest_s(placed)
            length_s = float((begin + placed).max())
            if length_s <= self.within_s:
                break
            slack_s = (self.dag.latest_s(placed, length_s) - placed - begin)[self.dag.place][: len(setting)]
            best: tuple[float, int, int, int] | None = None
            for part in np.flatnonzero((lost_s > 0.0) & (slack_s <= 1e-6 * length_s)).tolist():
                for first, end in self._slower_stays(setting, part):
                    to = int(setting[part])
                    more_j = float((self.cost_j[first:end, to] - self.cost_j[first:end, setting[first]]).sum())
                    if np.isfinite(self.time_s[first:end, to]).all():
                        best = min(best or (np.inf, 0, 0, 0), (more_j / lost_s[part], first, end, to))
            if best is None:
                break
            setting[best[1] : best[2]] = best[3]
        return setting

    def _slower_stays(self, setting: IndexArray, part: int) -> list[tuple[int, int]]:
        """Stays right before and after an instruction's own that are slower."""
        found = []
        for begin, end in self._stays(setting):
            rank = int(np.searchsorted(self.ranks, begin, side="right"))
            same = rank == int(np.searchsorted(self.ranks, part, side="right"))
            if same and setting[begin] < setting[part] and (end == part or begin == part + 1):
                found.append((begin, end))
        return found

    def _room(self, setting: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Of each instruction the earliest start, and the latest end that keeps the deadline."""
        placed, here = self._times(setting)[0][self.dag.order], self.dag.place[: len(setting)]
        return self.dag.earliest_s(placed)[here], self.dag.latest_s(placed, self.within_s)[here]

    def keeps(self, setting: IndexArray) -> bool:
        """Whether the deadline is kept."""
        placed = self._times(setting)[0][self.dag.order]
        return bool((self.dag.earliest_s(placed) + placed).max() <= self.within_s)

    def _times(self, setting: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Times of all parts, and what of it instructions lose by switches beside them that are late or early.

        On the faster side of a switch, ``off_s`` seconds run at the slower setting, which costs 1 − own time / slower time
        of them. Where the rank waits long before the second instruction, the switch is over by then: 10 ``off_s`` is 3
        standard deviations.
        """
        rows, times = np.arange(len(setting)), self.part_time_s.copy()
        own_s = self.time_s[rows, setting]
        lost_s = np.zeros(len(setting))
        after = np.flatnonzero(np.diff(setting)) + 1
        after = after[~np.isin(after, self.ranks)]
        waits_s = self.gap_s[after - 1] - self.part_time_s[after - 1]
        for part, other in ((after, after - 1), (after - 1, after)):
            faster = (setting[part] > setting[other]) & (waits_s < 10.0 * self.off_s)
            at, slow = part[faster], setting[other[faster]]
            slower_s = self.time_s[at, slow]
            lost = np.where(np.isfinite(slower_s), 1.0 - own_s[at] / np.where(slower_s > 0.0, slower_s, 1.0), _UNKNOWN)
            np.add.at(lost_s, at, self.off_s * np.maximum(lost, 0.0))
        times[: len(setting)] = own_s + lost_s
        return times, lost_s

    def exactly(self, setting: IndexArray) -> PlannedPipeline:
        """The plan of some settings, made faster where it misses the deadline by no more than rounding."""
        deadline, setting = deadline_of(self.made), setting.copy()
        while True:
            found = replanned(self.made, self.ways(setting))
            if found.solved.exact_time_s <= deadline:
                return found
            critical = found.solved.slack_s[: len(setting)] <= 1e-9 * found.solved.time_s
            slower = [
                (begin, end) for begin, end in self._stays(setting)
                if critical[begin:end].any() and setting[begin] + 1 < len(self.settings)
                and np.isfinite(self.time_s[begin:end, setting[begin] + 1]).all()
            ]  # fmt: skip
            if not slower:  # nothing critical can be faster: the plan as if switching took no time
                return replanned(self.made, self.made.solved.way)
            for begin, end in slower:
                setting[begin:end] += 1

    def ways(self, setting: IndexArray) -> IndexArray:
        """The ways of all parts of the plan's graph."""
        found = self.made.solved.way.copy()
        found[: len(setting)] = self.way[np.arange(len(setting)), setting]
        return found

    def _stays(self, setting: IndexArray) -> list[tuple[int, int]]:
        changes = np.flatnonzero(np.diff(setting)) + 1
        bounds = np.unique(np.concatenate([self.ranks, changes]))
        return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


def _before(time_s: FloatArray) -> FloatArray:
    """Times of all that comes before each, summed."""
    return np.concatenate([[0.0], np.cumsum(time_s[:-1])])


def _worth(made: PlannedPipeline) -> tuple[float, float]:
    """How sure the plan keeps its slowdown, as far as that was asked for; of plans that are as sure, what they save."""
    promise = made.plan.promise
    return 1.0 if promise is None else promise.sure / promise.confidence, -made.plan.predicted.energy_j


def deadline_of(made: PlannedPipeline) -> Fraction:
    """What the graph of a plan has to be done within, exactly."""
    plan, added = made.plan, Fraction(made.profile.iteration_s)
    within = (made.baseline.exact_time_s + added) * (1 + Fraction(plan.max_slowdown or 0.0))
    within = max(within, Fraction(plan.until_s or 0.0))
    if plan.promise is not None:  # as careful as the plan was made, of whose numbers none is sure
        within = min(within, max(made.solved.exact_time_s + added, Fraction(plan.until_s or 0.0)))
    return within - added


def _with_reserve(
    profile: PipelineProfile, reserve: float, late_s: float, charges: Mapping[tuple[int, str], FloatArray]
) -> PipelineProfile:
    """The profile whose ways take longer, all but the fastest of each instruction; waiting is what they cost.

    They do by a fraction of their time, and by no more than a number of seconds; and by what they are charged beyond that.
    """

    def padded(key: tuple[int, str], frontier: Frontier) -> Frontier:
        listed = listed_ways(frontier)
        fastest_s = min(time_s for time_s, _, _ in listed)
        more_s = [min(reserve * time_s, late_s) if time_s > fastest_s else 0.0 for time_s, _, _ in listed]
        if key in charges:
            more_s = [more + charge for more, charge in zip(more_s, charges[key].tolist(), strict=True)]
        return choice(
            [(time_s + more, energy_j + profile.waiting_w * more, label)
             for (time_s, energy_j, label), more in zip(listed, more_s, strict=True)]
        )  # fmt: skip

    return replace(profile, ways={key: padded(key, each) for key, each in profile.ways.items()})


def _switch_j(settings: Sequence[Setting], switching: SwitchTime, time_s: FloatArray, cost_j: FloatArray) -> FloatArray:
    """About what a switch costs by being early or late: ``jitter`` of its latency at the other setting's power."""
    known = np.isfinite(time_s)
    seconds = np.where(known, time_s, 0.0).sum(axis=0)
    power_w = np.where(known, cost_j, 0.0).sum(axis=0) / np.maximum(seconds, 1e-12)
    latency_s = np.array([[switching.latency_s(before, after) for after in settings] for before in settings])
    return np.asarray(switching.energy_j + switching.jitter * latency_s * np.abs(power_w[:, None] - power_w))


def _speed(setting: Setting) -> tuple[float, float, float]:
    parts = (setting.memory_mhz, setting.core_mhz, setting.power_limit_w)
    memory, core, limit = (math.inf if part is None else part for part in parts)
    return core, memory, limit
