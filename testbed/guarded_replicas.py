"""Replicas of a pipeline that wait for each other, follow a straggler server and are guarded: no physics, only times.

Each replica is a process, or each of its ranks is. An iteration takes a replica what its rung is planned to, or what the
default clocks take, times how much slower it is; all wait for the slowest. What it uses is what was planned.
"""

from __future__ import annotations

import math
import random
import threading
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace

from wastenot.control.marker import Marker
from wastenot.core.setting import AUTO, Setting
from wastenot.pipelines.plan.plan import PipelinePlan
from wastenot.pipelines.plan.rank_steps import PlanGraph, Step
from wastenot.pipelines.plan.straggler import Rungs
from wastenot.pipelines.run.controller import PipelineController
from wastenot.pipelines.run.rung_follower import plan_at
from wastenot.pipelines.run.straggler_source import StragglerSource
from wastenot.pipelines.run.stragglers import Order, Stragglers
from wastenot.planning.switching import switch_time

_EACH_S = 0.1  # between two steps of an energy counter
_JITTER_S = 2e-4  # by which marks are seen apart


class Gpu:
    """A GPU that draws what it is told to; time is virtual."""

    def __init__(self) -> None:
        self.now, self.power_w, self.since_s, self.used_j, self.requested = 0.0, 0.0, 0.0, 0.0, AUTO
        self.identity = SimpleNamespace(name="gpu", model="GPU", unique_id="0", origin="simulated", label="gpu")
        self.time = SimpleNamespace(now_s=lambda: self.now)
        self.clocks = SimpleNamespace(request=self._request)
        self.sensors = SimpleNamespace(
            energy_delay_s=0.0, energy_j=self._energy_j, power_w=lambda: self.power_w, temperature_c=lambda: 50.0,
            clocks=lambda: SimpleNamespace(core_mhz=1500.0, memory_mhz=2000.0), throttled_s=lambda: None,
            memory_power_w=lambda: None, processes=lambda: None,
        )  # fmt: skip

    def draw(self, power_w: float, now_s: float) -> None:
        """Draw so much from a moment on."""
        self.used_j += self.power_w * (now_s - self.since_s)
        self.power_w, self.since_s = power_w, now_s

    def _request(self, setting: Setting) -> None:
        self.requested = setting

    def _energy_j(self) -> float:
        at_s = math.floor(self.now / _EACH_S) * _EACH_S
        return self.used_j + self.power_w * (at_s - self.since_s)


class Source(StragglerSource):
    """A rank's side of a server in this process: what it is told arrives before its next instruction."""

    def __init__(self, job: Job, replica: int, rank: int) -> None:
        self.job, self.replica, self.rank = job, replica, rank
        self._orders, self._asked, self._line, self._over = deque(maxlen=4), -1, None, threading.Event()
        self.late, self.heard_s, self.compare, self.gone = 0, 0.0, -1, False
        self.hear(job.stragglers.join(replica, rank, 0.0))

    def hear(self, order: Order) -> None:
        """What the server says."""
        self._take({"order": [order.rung, order.begin, order.until, order.compare]})

    def ended(self, iteration: int, factor: float | None, throttled: str | None = None, *, suspects: bool = False) -> None:
        """Report an iteration."""
        if self.gone:
            return
        stragglers = self.job.stragglers
        self.job.take(stragglers.report(self.replica, self.rank, iteration, factor, 0.0, throttled, suspects=suspects))


@dataclass
class Job:
    """Replicas in lockstep.

    Attributes:
        plan: with rungs.
        replicas: how many.
        noise: standard deviation of the logarithm of an iteration's time.
        seed: of it.
        apart: whether each rank is a process of its own.
        default: by iteration, whether each process ran the default clocks.
        took_s: by iteration.
        saved_j: against the default clocks, without waiting, by iteration and replica.
    """

    plan: PipelinePlan
    replicas: int = 3
    noise: float = 0.005
    seed: int = 0
    apart: bool = False
    now_s: float = 0.0
    sources: list[Source] = field(default_factory=list)
    default: list[list[bool]] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    saved_j: list[float] = field(default_factory=list)
    known: dict[int | None, tuple[list[tuple[Step, ...]], float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng, self.rungs = random.Random(self.seed), Rungs(self.plan)
        ranks, graph = len(self.plan.ranks), PlanGraph(self.plan)
        self.stragglers = Stragglers(self.rungs, self.replicas, ranks)
        self.gpus = [[Gpu() for _ in range(ranks)] for _ in range(self.replicas)]
        switching = switch_time("")
        self.seats: list[list[tuple[PipelineController, int]]] = []
        for replica, gpus in enumerate(self.gpus):
            shares = [[each] for each in gpus] if self.apart else [gpus]
            made = [PipelineController(graph, "p", each, [switching] * len(each), now_s=0.0) for each in shares]
            self.seats.append([(made[rank], 0) if self.apart else (made[0], rank) for rank in range(ranks)])
            for rank, (controller, gpu) in enumerate(self.seats[-1]):
                controller.seat(gpu, rank)
                self.sources.append(Source(self, replica, rank))
                controller.listen(gpu, rank, self.sources[-1])

    @cached_property
    def controllers(self) -> list[PipelineController]:
        """Of all processes."""
        return list(dict.fromkeys(controller for seats in self.seats for controller, _ in seats))

    def run(self, iterations: int, *slower: float, plan_slower: float = 1.0) -> None:
        """Run iterations.

        Args:
            iterations: how many.
            slower: times as long as planned that each replica takes; those left out are not slower.
            plan_slower: times as long as planned at any clocks but the default ones.
        """
        for _ in range(iterations):
            number, begins, done = len(self.took_s), [], []
            factors = [each * math.exp(self.rng.gauss(0.0, self.noise)) for each in (*slower, *(1.0,) * self.replicas)]
            for replica in range(self.replicas):
                for rank, steps in enumerate(self.plan_of(replica, number)[0]):
                    at_s = self.now_s + steps[0].start_s * factors[replica] + self.rng.uniform(0.0, _JITTER_S)
                    begins.append((at_s, replica, rank, steps[0]))
            self._mark(begins)
            begins.clear()
            self.default.append([_at_default(each) for each in self.controllers])
            for replica, seats in enumerate(self.seats):
                steps, period_s, energy_j = self.plan_of(replica, number)
                at_default = all(_at_default(controller) for controller, _ in seats)
                own_s = self.plan.baseline.time_s if at_default else period_s * plan_slower
                done.append(own_s * factors[replica])
                used_j = self.plan.own_baseline_j if at_default else energy_j
                self.saved_j.append(self.plan.own_baseline_j - used_j)
                for rank, gpu in enumerate(self.gpus[replica]):
                    gpu.draw(used_j / len(seats) / done[-1], self.now_s)
                    begins += [
                        (self.now_s + step.start_s * done[-1] / period_s, replica, rank, step) for step in steps[rank][1:]
                    ]
            self._mark(begins)
            end_s = self.now_s + max(done)
            for gpus, own_s in zip(self.gpus, done, strict=True):
                for gpu in gpus:
                    gpu.draw(gpu.power_w, self.now_s + own_s)
                    gpu.draw(self.plan.waiting_w, self.now_s + own_s)
            self._act(end_s - 1e-3)
            self.took_s.append(max(done))
            self.now_s = end_s

    def take(self, orders: dict[int, Order]) -> None:
        """What the server tells ranks, by replica."""
        for source in self.sources:
            if source.replica in orders and not source.gone:
                source.hear(orders[source.replica])

    def plan_of(self, replica: int, iteration: int) -> tuple[list[tuple[Step, ...]], float, float]:
        """What the ranks of a replica run, how long it takes, and its energy."""
        rung = next(each.rung(iteration) for each in self.sources if each.replica == replica)
        if rung not in self.known:
            graph = PlanGraph(self.plan if rung is None else plan_at(self.plan, rung))
            steps = [graph.steps(rank) for rank in range(len(self.plan.ranks))]
            self.known[rung] = steps, graph.period_s, self.rungs.energy_j[self.rungs.own if rung is None else rung]
        return self.known[rung]

    def stepped(self) -> list[bool]:
        """Whether each process has stepped to the default clocks."""
        return [any(each.kind == "stepped" for each in controller.status().events) for controller in self.controllers]

    def _mark(self, begins: list[tuple[float, int, int, Step]]) -> None:
        for at_s, replica, rank, step in sorted(begins, key=lambda each: each[:3]):
            self._act(at_s)
            self._tick(at_s)
            controller, gpu = self.seats[replica][rank]
            controller.mark(Marker(f"{step.instruction.name}:{step.instruction.micro_batch}", 0, at_s, gpu))

    def _act(self, until_s: float) -> None:
        for controller in self.controllers:
            while (due_s := controller.due_s()) is not None and due_s < until_s:
                self._tick(max(due_s, self.now_s))
                controller.act(max(due_s, self.now_s) + 1e-6)

    def _tick(self, now_s: float) -> None:
        for gpus in self.gpus:
            for gpu in gpus:
                gpu.now = max(gpu.now, now_s)


def _at_default(controller: PipelineController) -> bool:
    status = controller.status()
    return status.at_default or status.rung == status.rungs - 1
