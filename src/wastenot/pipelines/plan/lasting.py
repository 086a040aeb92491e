"""What the settings of an iteration's instructions come to where each lasts as long as a switch takes.

Ranks are coupled by dependencies alone: whether the deadline is kept is the longest path of the whole graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.core.errors import InfeasibleError
from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import Frontier, choice
from wastenot.frontiers.graph import Graph, GraphPlan
from wastenot.frontiers.graph_rounding import Effort
from wastenot.frontiers.graph_times import Dag
from wastenot.pipelines.model.iteration_graph import pipeline_graph
from wastenot.pipelines.model.profile import PipelineProfile, listed_ways
from wastenot.pipelines.plan.planner import PlannedPipeline, replanned
from wastenot.planning.switching import SwitchTime

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

_LATER = 1.0 + 1e-9  # the deadline at which time is priced: at the least time itself its price has no end
NEARLY = 0.98  # of its least length that a stay has in the plan without reserve, in which waits are elsewhere


@dataclass(eq=False)
class LastingProblem:
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
        padded: the graph with reserve.
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
    padded: Graph

    @cached_property
    def lasts_s(self) -> FloatArray:
        """From the begin of each instruction to that of the next on its rank, at each setting."""
        return np.maximum(self.gap_s[:, None], np.where(np.isfinite(self.time_s), self.time_s, 0.0))

    @cached_property
    def plain_s(self) -> FloatArray:
        """Times without reserve, 0 where an instruction cannot have a setting."""
        graph = self.made.graph
        kinds = graph.kind[: len(self.way)].tolist()
        plain_s = np.stack([graph.ways(kind).time_s[ways] for kind, ways in zip(kinds, self.way, strict=True)])
        return np.where(np.isfinite(self.time_s), plain_s, 0.0)

    @cached_property
    def price_w(self) -> FloatArray:
        """What a second is worth in each instruction, by the relaxation of the graph."""
        prices_w = self.padded.prices_of_time(
            self._priced_at_s, until_s=self.made.profile.graph_until_s(self.made.plan.until_s)
        )
        return prices_w[: len(self.time_s)]

    @cached_property
    def total_w(self) -> float:
        """What a later deadline is worth."""
        return self.padded.price_of_time(self._priced_at_s, until_s=self.made.profile.graph_until_s(self.made.plan.until_s))

    @property
    def never_changes(self) -> bool:
        """Whether no two stays fit into an iteration."""
        return 2.0 * NEARLY * self.stay_s > self.within_s + self.made.profile.iteration_s

    @property
    def _priced_at_s(self) -> float:
        return max(float(deadline_of(self.made)), self.padded.least_time().time_s) * _LATER

    @classmethod
    def of(
        cls, made: PlannedPipeline, switching: SwitchTime, reserve: float, margin: float, effort: Effort | None
    ) -> LastingProblem | None:
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
        within, until_s = deadline_of(made), made.profile.graph_until_s(made.plan.until_s)
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
        gap_s = _gaps_s(solved.start_s, ranks, solved.time_s + made.profile.iteration_s)
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
            padded,
        )

    def longest(self, time_s: FloatArray) -> tuple[BoolArray, float]:
        """Whether each instruction is on a longest path, and its length, with times of all parts or of instructions."""
        dag = self.dag
        placed = np.append(time_s, self.part_time_s[len(time_s) :])[dag.order]
        begin_s = dag.earliest_s(placed)
        on, end_s = np.zeros(len(placed), dtype=bool), begin_s + placed
        on[dag.critical_path(begin_s, end_s)] = True
        return on[dag.place][: len(self.time_s)], float(end_s.max())

    def room(self, setting: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Of each instruction the earliest start, and the latest end that keeps the deadline."""
        placed, here = self.times(setting)[0][self.dag.order], self.dag.place[: len(setting)]
        return self.dag.earliest_s(placed)[here], self.dag.latest_s(placed, self.within_s)[here]

    def keeps(self, setting: IndexArray) -> bool:
        """Whether the deadline is kept."""
        return bool(self.timed(setting[None])[1][0] <= self.within_s)

    def times(self, setting: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Times of all parts, and what of it instructions lose by switches beside them that are late or early."""
        times, lost_s = self._many_times(setting[None])
        return times[:, 0].copy(), lost_s[0]

    def timed(self, settings: IndexArray) -> tuple[FloatArray, FloatArray]:
        """When instructions begin, shape (sets, instructions), and the longest path, with several sets of settings."""
        times = self._many_times(settings)[0][self.dag.order]
        ends_s = self.dag.ends_s(times)
        return (ends_s - times)[self.dag.place[: settings.shape[1]]].T, ends_s.max(axis=0)

    def too_short(
        self, setting: IndexArray, start_s: FloatArray, whole_s: float, part: float = 1.0, rank: int | None = None
    ) -> Iterator[tuple[int, int, IndexArray, int]]:
        """The stays that last less than part of their least length.

        Args:
            setting: of each instruction.
            start_s: when they begin.
            whole_s: from an iteration's begin to that of the next.
            part: of the least length that is enough.
            rank: the only one to look at, if any.

        Yields:
            The rank's first instruction and one past its last, where its stays begin, and which is too short.
        """
        for begin, end in list(pairwise(self.ranks.tolist()))[slice(rank, None if rank is None else rank + 1)]:
            own = setting[begin:end]
            first = np.flatnonzero(np.append(own[0] != own[-1], own[1:] != own[:-1]))
            if len(first) < 2:
                continue
            starts = start_s[begin:end][first]
            lasts_s = np.append(starts[1:], starts[0] + whole_s) - starts
            least_s = np.where(self.slow[own[first], own[np.roll(first, -1)]], self.slow_stay_s, self.stay_s)
            for which in np.flatnonzero(lasts_s < part * least_s).tolist():
                yield begin, end, first, which

    def _many_times(self, settings: IndexArray) -> tuple[FloatArray, FloatArray]:
        """The times of all parts, shape (parts, sets), and what instructions lose of them, shape (sets, instructions).

        On the faster side of a switch, ``off_s`` seconds run at the slower setting, which costs 1 − own time / slower time
        of them. Where the rank waits long before the second instruction, the switch is over by then: 10 ``off_s`` is 3
        standard deviations.
        """
        count = settings.shape[1]
        own_s = self.time_s[np.arange(count), settings]
        lost_s = np.zeros(own_s.shape)
        times = np.repeat(self.part_time_s[:, None], len(settings), axis=1)
        waits_s = self.gap_s - self.part_time_s[:count]
        beside = (settings[:, 1:] != settings[:, :-1]) & (waits_s[:-1] < 10.0 * self.off_s)
        beside[:, self.ranks[1:-1] - 1] = False
        which, before = np.nonzero(beside)
        for part, other in ((before + 1, before), (before, before + 1)):
            faster = settings[which, part] > settings[which, other]
            at, slow = part[faster], settings[which, other][faster]
            slower_s = self.time_s[at, slow]
            ratio = own_s[which[faster], at] / np.where(slower_s > 0.0, slower_s, 1.0)
            lost = np.where(np.isfinite(slower_s), 1.0 - ratio, _UNKNOWN)
            np.add.at(lost_s, (which[faster], at), self.off_s * np.maximum(lost, 0.0))
        times[:count] = (own_s + lost_s).T
        return times, lost_s

    def cost(self, setting: IndexArray) -> float:
        """Of all instructions and switches, less what ranks would draw waiting meanwhile."""
        after = np.flatnonzero(np.diff(setting)) + 1
        after = after[~np.isin(after, self.ranks)]
        switched_j = self.switch_j[setting[after - 1], setting[after]].sum()
        return float(self.cost_j[np.arange(len(setting)), setting].sum() + switched_j)

    def exactly(self, setting: IndexArray) -> PlannedPipeline:
        """The plan of some settings, made faster where it misses the deadline by no more than rounding.

        Stays that turn out too short in that plan, in which ranks wait elsewhere, are joined with a neighbour.
        """
        deadline, setting, made = deadline_of(self.made), setting.copy(), self.made
        while True:
            found = made.graph.plan(self.ways(setting), made.profile.graph_until_s(made.plan.until_s))
            if found.exact_time_s <= deadline:
                if (joined := self._joined(setting, found)) is None:
                    return replanned(made, found.way)
                setting = joined
                continue
            critical = found.slack_s[: len(setting)] <= 1e-9 * found.time_s
            slower = [
                (begin, end) for begin, end in self.stays(setting)
                if critical[begin:end].any() and setting[begin] + 1 < len(self.settings)
                and np.isfinite(self.time_s[begin:end, setting[begin] + 1]).all()
            ]  # fmt: skip
            if not slower:  # nothing critical can be faster: the plan as if switching took no time
                return replanned(self.made, self.made.solved.way)
            for begin, end in slower:
                setting[begin:end] += 1

    def _joined(self, setting: IndexArray, plan: GraphPlan) -> IndexArray | None:
        """The slower side of a stay that is too short made as fast as the other; ``None`` where all stays last."""
        whole_s, joined, done = plan.time_s + self.made.profile.iteration_s, setting.copy(), -1
        for begin, end, first, which in self.too_short(setting, plan.start_s, whole_s, NEARLY):
            if begin == done:
                continue  # one of each rank at a time, since the next may last by then
            own, options = setting[begin:end], []
            for other in (which - 1, (which + 1) % len(first)):
                pair = int(own[first[which]]), int(own[first[other]])
                slower = which if pair[0] < pair[1] else other
                at, until = int(first[slower]), int(first[(slower + 1) % len(first)])
                stay = begin + (np.r_[at:until] if at < until else np.r_[at : end - begin, 0:until])
                changed = joined.copy()
                changed[stay] = max(pair)
                if np.isfinite(self.time_s[stay, max(pair)]).all():
                    options.append((self.cost(changed), changed))
            if options:
                joined, done = min(options, key=lambda each: each[0])[1], begin
        return None if done < 0 else joined

    def waiting_as(self, plan: PlannedPipeline) -> LastingProblem:
        """The same with the gaps of another plan."""
        whole_s = plan.solved.time_s + plan.profile.iteration_s
        return replace(self, gap_s=_gaps_s(plan.solved.start_s, self.ranks, whole_s))

    def settings_of(self, plan: PlannedPipeline) -> IndexArray:
        """The settings of a plan that :meth:`exactly` made."""
        return np.asarray((self.way == plan.solved.way[: len(self.way), None]).argmax(axis=1))

    def ways(self, setting: IndexArray) -> IndexArray:
        """The ways of all parts of the plan's graph."""
        found = self.made.solved.way.copy()
        found[: len(setting)] = self.way[np.arange(len(setting)), setting]
        return found

    def rank_of(self, instruction: int) -> int:
        """The rank that runs an instruction."""
        return int(np.searchsorted(self.ranks, instruction, side="right")) - 1

    def stays(self, setting: IndexArray) -> list[tuple[int, int]]:
        """The first instruction of each stay of every rank, and one past its last; cut at the end of an iteration."""
        changes = np.flatnonzero(np.diff(setting)) + 1
        bounds = np.unique(np.concatenate([self.ranks, changes]))
        return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


def _gaps_s(start_s: FloatArray, ranks: IndexArray, whole_s: float) -> FloatArray:
    """From the begin of each instruction to that of the next on its rank, in a loop."""
    gap_s = np.empty(int(ranks[-1]))
    for begin, end in pairwise(ranks.tolist()):
        starts = start_s[begin:end]
        gap_s[begin : end - 1] = np.diff(starts)
        gap_s[end - 1] = max(whole_s - float(starts[-1] - starts[0]), 0.0)
    return gap_s


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
