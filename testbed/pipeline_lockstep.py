"""A pipeline on simulated GPUs in lockstep: each rank runs its instructions in its order and waits for the others' data.

    GPU 0   |F0|F1|······|B0|··|B1|all-reduce|      each at whatever clocks are in effect, with its own faults
    GPU 1      |F0|F1|B0|··|B1|·····all-reduce|
    driver  ^  ^  ^  ^  ^                           sees each instruction's begin, and requests clocks

Time is virtual. It advances from event to event: an instruction ends, data arrives, a clock takes effect, the driver acts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from testbed.pipeline_work import Course, Work
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.engine import Engine
from wastenot.devices.simulated.physics import OperatingPoint
from wastenot.frontiers.graph import Graph
from wastenot.pipelines.model.schedule import Instruction
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.run.rank_execution import RankExecution

SEEN_S = 2e-4
"""How long after an instruction began its mark is seen."""

_LEAST_S = 1e-9


@dataclass(frozen=True, slots=True)
class Faults:
    """How executions of instructions differ: standard deviations of logarithms.

    Attributes:
        time: of each execution's time, each by itself.
        power: likewise, of its power.
        card: of the time of all instructions of one card, which never changes.
    """

    time: float = 0.003
    power: float = 0.003
    card: float = 0.0


@dataclass(frozen=True, slots=True)
class Ran:
    """An instruction as it ran.

    Attributes:
        rank: that ran it.
        iteration: from 0.
        step: its index among the rank's instructions.
        begin_s: when it began, in virtual time.
        end_s: when it ended.
        energy_j: that it took.
        settings: those in effect meanwhile, each with the time from the instruction's begin at which it was first.
    """

    rank: int
    iteration: int
    step: int
    begin_s: float
    end_s: float
    energy_j: float
    settings: tuple[tuple[float, Setting], ...]


@dataclass(frozen=True, slots=True)
class RanIteration:
    """An iteration as it ran.

    Attributes:
        begin_s: when it began on all ranks.
        time_s: until the next one.
        energy_j: of each rank's GPU meanwhile.
    """

    begin_s: float
    time_s: float
    energy_j: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """What became of a simulated pipeline.

    Attributes:
        iterations: one after another.
        instructions: of all ranks, by their ends.
    """

    iterations: tuple[RanIteration, ...]
    instructions: tuple[Ran, ...]


class PipelineDriver(Protocol):
    """What requests clocks as a pipeline runs; one for all ranks."""

    def begin(self, rank: int, step: int, now_s: float) -> None:
        """A rank's GPU began an instruction."""

    def due_s(self) -> float:
        """When to act next; infinite for never."""

    def act(self, now_s: float) -> None:
        """Do what is due."""


class RankExecutions:
    """The ranks of a pipeline whose GPUs are controlled together.

    Args:
        ranks: by rank.
    """

    def __init__(self, ranks: Sequence[RankExecution]) -> None:
        self.ranks = tuple(ranks)

    def begin(self, rank: int, step: int, now_s: float) -> None:
        """A rank's GPU began an instruction."""
        self.ranks[rank].begin(step, now_s)

    def due_s(self) -> float:
        """When to act next; infinite for never."""
        return min(rank.due_s for rank in self.ranks)

    def act(self, now_s: float) -> None:
        """Do what is due."""
        for rank in self.ranks:
            rank.act(now_s)


def simulate_pipeline(
    plan: PlanGraph,
    gpus: Sequence[SimulatedDevice],
    work: Sequence[Work],
    driver: PipelineDriver | None,
    iterations: int,
    *,
    faults: Faults | None = None,
    seed: int = 0,
) -> SimulatedRun:
    """Run iterations of a pipeline.

    Args:
        plan: whose schedule is run; its clocks are the driver's matter.
        gpus: one for each rank, in virtual time.
        work: what instructions take on each.
        driver: requests clocks; ``None`` leaves them as they are.
        iterations: how many.
        faults: how executions differ.
        seed: of how they do.

    Raises:
        BadInputError: there is not one GPU, or not one work, for each rank, or one is not simulated in virtual time.
        CannotRunError: an instruction is unknown to a rank's work.
    """
    ranks = len(plan.schedule.ranks)
    if len(gpus) != ranks or len(work) != ranks:
        raise BadInputError(f"`gpus`: the plan has {ranks} ranks, and there are {len(gpus)} GPUs and {len(work)} of work")
    for gpu in gpus:
        if gpu.engine.on_wall_time:
            raise BadInputError(f"`gpus`: {gpu.identity.name} runs in wall time")
    return _Simulation(plan, gpus, work, driver, faults or Faults(), seed).run(iterations)


class _Simulation:
    def __init__(
        self,
        plan: PlanGraph,
        gpus: Sequence[SimulatedDevice],
        work: Sequence[Work],
        driver: PipelineDriver | None,
        faults: Faults,
        seed: int,
    ) -> None:
        self._plan, self._driver = plan, driver
        graph, timed = plan.graph, plan.timed
        self._before: list[list[tuple[int, float]]] = [[] for _ in range(len(graph))]
        for (earlier, later), delay in zip(graph.edges.tolist(), graph.delay_s.tolist(), strict=True):
            self._before[later].append((earlier, delay))
        self._time_s = timed.part_time_s.tolist()
        self._beside = np.flatnonzero(graph.worker < 0).tolist()  # what keeps no GPU busy
        self._beside_j = [0.0] * len(gpus)
        for part in self._beside:
            self._beside_j[plan.parts[part][0]] += float(graph.ways(int(graph.kind[part])).energy_j[0])
        self._end_s: list[float] = []
        order = np.argsort(timed.start_s, kind="stable")
        instructions = plan.schedule.instructions
        self._ranks: list[_Rank] = []
        for index, (gpu, each) in enumerate(zip(gpus, work, strict=True)):
            parts = [
                _fixed_part(graph, part) if part >= len(instructions) else _Part(part, instructions[part])
                for part in order[graph.worker[order] == index].tolist()
            ]
            rest = (plan.plan.iteration_s, plan.plan.iteration_j)
            self._ranks.append(_Rank(index, gpu, each, parts, int(plan.first[index]), rest, faults, (seed, index)))
        self._now_s = 0.0
        self._unseen: list[tuple[float, int, int]] = []  # begins that the driver has not seen yet

    def run(self, iterations: int) -> SimulatedRun:
        rest = self._plan.plan
        for rank in self._ranks:
            rank.follow(self._now_s)
        found: list[RanIteration] = []
        begin_s, before_j = self._now_s, [rank.energy_j for rank in self._ranks]
        for iteration in range(iterations):
            self._end_s = [math.inf] * len(self._before)
            for rank in self._ranks:
                rank.restart(iteration)
            self._until(lambda: all(rank.done for rank in self._ranks))
            beside_s = max((self._ready_s(part) + self._time_s[part] for part in self._beside), default=-math.inf)
            self._until(lambda end_s=beside_s: self._now_s >= end_s - _LEAST_S, beside_s)
            if rest.iteration_s > 0.0:
                for rank in self._ranks:
                    rank.finish()
                self._until(lambda: all(rank.finished for rank in self._ranks))
            if rest.until_s is not None:
                end_s = begin_s + rest.until_s
                self._until(lambda end_s=end_s: self._now_s >= end_s - _LEAST_S, end_s)
            after_j = [rank.energy_j for rank in self._ranks]
            used = tuple(
                after - before + beside for before, after, beside in zip(before_j, after_j, self._beside_j, strict=True)
            )
            found.append(RanIteration(begin_s, self._now_s - begin_s, used))
            begin_s, before_j = self._now_s, after_j
        for rank in self._ranks:
            rank.device.engine.follow(None)
        return SimulatedRun(tuple(found), tuple(sorted((r for k in self._ranks for r in k.ran), key=lambda r: r.end_s)))

    def _until(self, ended: _Condition, end_s: float = math.inf) -> None:
        while True:
            self._start_ready()
            if ended():
                return
            until_s = min(end_s, *(rank.next_s(self._now_s) for rank in self._ranks), *self._waits())
            if self._driver is not None:
                until_s = min(until_s, self._driver.due_s(), *(seen_s for seen_s, _, _ in self._unseen))
            if math.isinf(until_s):
                raise BadInputError("`plan`: its ranks wait for each other")
            self._now_s = max(until_s, self._now_s)
            for rank in self._ranks:
                for part, ended_s in rank.advance(self._now_s):
                    self._end_s[part] = ended_s
            self._drive()

    def _drive(self) -> None:
        if self._driver is None:
            return
        seen = sorted(each for each in self._unseen if each[0] <= self._now_s + _LEAST_S)
        self._unseen = [each for each in self._unseen if each[0] > self._now_s + _LEAST_S]
        for seen_s, rank, step in seen:
            self._driver.begin(rank, step, seen_s - SEEN_S)
        while self._driver.due_s() <= self._now_s:
            self._driver.act(self._now_s)

    def _ready_s(self, part: int) -> float:
        """When all that a part waits for is there; infinite where that is not known yet."""
        ends = (
            (self._ready_s(earlier) + self._time_s[earlier] if self._end_s[earlier] == math.inf and earlier in self._beside
             else self._end_s[earlier]) + delay
            for earlier, delay in self._before[part]
        )  # fmt: skip
        return max(ends, default=-math.inf)

    def _start_ready(self) -> None:
        for rank in self._ranks:
            if rank.waits and self._ready_s(rank.part) <= self._now_s + _LEAST_S:
                step = rank.begin()
                if step is not None:
                    self._unseen.append((self._now_s + SEEN_S, rank.index, step))

    def _waits(self) -> list[float]:
        return [self._ready_s(rank.part) for rank in self._ranks if rank.waits]


class _Condition(Protocol):
    def __call__(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the graph that a rank runs: an instruction, or fixed work with its course."""

    index: int
    instruction: Instruction | None
    fixed: Course | None = None


def _fixed_part(graph: Graph, part: int) -> _Part:
    points = graph.ways(int(graph.kind[part]))
    time_s, energy_j = float(points.time_s[0]), float(points.energy_j[0])
    return _Part(part, None, Course(np.array([0.0, time_s]), np.array([0.0, energy_j])))


class _Rank:
    """A rank: the course that its engine follows."""

    def __init__(
        self,
        index: int,
        device: SimulatedDevice,
        work: Work,
        parts: Sequence[_Part],
        first: int,
        rest: tuple[float, float],
        faults: Faults,
        seed: tuple[int, int],
    ) -> None:
        self.index, self.device, self._work, self._parts, self._first = index, device, work, tuple(parts), first
        self._rest_s, self._rest_w = rest[0], rest[1] / rest[0] if rest[0] else 0.0
        self._faults, self._rng = faults, np.random.default_rng([*seed, 97])
        self._card = math.exp(faults.card * float(self._rng.standard_normal()))
        memory_mhz, cores_mhz = max(device.clocks.supported_clocks().items())
        self._highest = max(cores_mhz), memory_mhz
        self.ran: list[Ran] = []
        self._ended: list[tuple[int, float]] = []
        self.energy_j = 0.0
        self._at_part, self._iteration = 0, 0
        self._runs, self._resting_s = False, 0.0
        self._kernel, self._part = 0, 0.0
        self._slower = self._hotter = 1.0
        self._began_s = self._used_j = self._here_s = self._offset_s = 0.0
        self._settings: list[tuple[float, Setting]] = []
        self.finished = False

    # ---- for the simulation ----------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        return self._at_part == len(self._parts)

    @property
    def part(self) -> int:
        """The part of the graph that runs, or is next."""
        return self._parts[self._at_part].index

    @property
    def waits(self) -> bool:
        return not self._runs and not self.done

    def follow(self, now_s: float) -> None:
        self._here_s = now_s
        self._offset_s = self.device.engine.now_s - now_s
        self.device.engine.follow(self)

    def moved_bytes(self) -> float:
        return 0.0  # whose kernels' traffic nobody asks for

    def restart(self, iteration: int) -> None:
        self._at_part, self._iteration, self.finished = 0, iteration, False

    def begin(self) -> int | None:
        """Begin the next part, whose data is there; the number of the instruction, if it is one."""
        faults, here = self._faults, self._parts[self._at_part]
        self._slower = self._hotter = 1.0
        if here.instruction is not None:
            self._slower = self._card * math.exp(faults.time * float(self._rng.standard_normal()))
            self._hotter = math.exp(faults.power * float(self._rng.standard_normal()))
        self._runs, self._kernel, self._part = True, 0, 0.0
        self._began_s, self._used_j, self._settings = self._here_s, 0.0, []
        return None if here.instruction is None else here.index - self._first

    def finish(self) -> None:
        """Run what ends an iteration."""
        self._resting_s = self._rest_s

    def next_s(self, now_s: float) -> float:
        """When something may happen here by itself."""
        engine = self.device.engine
        found = _next_change_s(engine) - self._offset_s
        if self._runs:
            course = self._course(engine.setting, engine.temperature_c)
            found = min(found, now_s + (course.until_s[-1] - self._at(course.until_s)) * self._slower)
        elif self._resting_s > 0.0:
            found = min(found, now_s + self._resting_s)
        return max(found, now_s + _LEAST_S)

    def advance(self, until_s: float) -> list[tuple[int, float]]:
        """Run until a moment; returns the parts that ended, and when."""
        engine = self.device.engine
        engine.advance(max(until_s + self._offset_s - engine.now_s, 0.0))
        ended, self._ended = self._ended, []
        return ended

    # ---- for the engine --------------------------------------------------------------------------------------

    def run(self, setting: Setting, temperature_c: float, seconds: float) -> tuple[float, OperatingPoint]:
        """Run on at clocks that are in effect; see :class:`wastenot.devices.simulated.engine.Course`."""
        core_mhz, memory_mhz = setting.core_mhz or self._highest[0], setting.memory_mhz or self._highest[1]
        throttled = False
        if self._runs:
            course = self._course(setting, temperature_c)
            throttled = course.throttled
            if not self._settings or self._settings[-1][1] != setting:
                self._settings.append((self._here_s - self._began_s, setting))
            seconds, energy_j = self._run(course, seconds)
        elif self._resting_s > 0.0:
            seconds = min(seconds, self._resting_s)
            self._resting_s -= seconds
            energy_j = seconds * self._rest_w
            if self._resting_s <= _LEAST_S:
                self._resting_s, self.finished = 0.0, True
        else:
            energy_j = seconds * self._work.waiting_w(setting, temperature_c)
        self._here_s += seconds
        self.energy_j += energy_j
        if self._runs and self._kernel < 0:
            self._end()
        power_w = energy_j / seconds if seconds > 0.0 else 0.0
        return seconds, OperatingPoint(max(seconds, _LEAST_S), power_w, core_mhz, memory_mhz, throttled)

    def pause(self, seconds: float) -> None:
        """Let time pass in which nothing comes along, as clocks change."""
        self._here_s += seconds
        self.energy_j += seconds * self._work.waiting_w(self.device.engine.setting, self.device.engine.temperature_c)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _course(self, setting: Setting, temperature_c: float) -> Course:
        here = self._parts[self._at_part]
        if here.fixed is not None or here.instruction is None:
            assert here.fixed is not None
            return here.fixed
        return self._work.course(here.instruction.stage, here.instruction.name, setting, temperature_c)

    def _at(self, until: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
        low, high = float(until[self._kernel]), float(until[self._kernel + 1])
        return low + self._part * (high - low)

    def _run(self, course: Course, seconds: float) -> tuple[float, float]:
        """Run on; time and energy taken. The kernel is −1 once the instruction has ended."""
        from_s, from_j = self._at(course.until_s), self._at(course.until_j)
        to_s = from_s + seconds / self._slower
        if to_s >= course.until_s[-1] - _LEAST_S:
            seconds = max(float(course.until_s[-1]) - from_s, 0.0) * self._slower
            energy_j = (float(course.until_j[-1]) - from_j) * self._slower * self._hotter
            self._kernel = -1
        else:
            kernel = int(np.searchsorted(course.until_s, to_s, side="right")) - 1
            low, high = float(course.until_s[kernel]), float(course.until_s[kernel + 1])
            self._kernel, self._part = kernel, (to_s - low) / (high - low)
            energy_j = (self._at(course.until_j) - from_j) * self._slower * self._hotter
        self._used_j += energy_j
        return seconds, energy_j

    def _end(self) -> None:
        part, settings = self._parts[self._at_part], tuple(self._settings)
        self._ended.append((part.index, self._here_s))
        if part.instruction is not None:
            step = part.index - self._first
            self.ran.append(Ran(self.index, self._iteration, step, self._began_s, self._here_s, self._used_j, settings))
        self._runs, self._kernel, self._part = False, 0, 0.0
        self._at_part += 1


def _next_change_s(engine: Engine) -> float:
    """When the next request takes effect, or makes kernels pause; infinite where none is in flight."""
    moments = (moment for change in engine._in_flight for moment in (change.pauses_s, change.arrives_s))
    return min((moment for moment in moments if moment > engine.now_s), default=math.inf)
