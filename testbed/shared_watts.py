"""Simulated GPUs that share a budget of watts while jobs come and end, second by second on virtual time.

A GPU is at once where its physics take it under its limit; readings are noisy. Work is fixed: a slowed job ends later,
and whoever waits for its GPUs begins later.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.setting import AUTO, Setting
from wastenot.devices.clockd.budget import Budget, Frontier, Seen, filled
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.physics import OperatingPoint
from wastenot.frontiers.algebra import choice, repeat, sequence
from wastenot.workloads.build import build_workload

_LOOKS_S = 90.0  # after anything has changed, for which every second is looked at; then every tenth
_STEP_W = 5.0  # between limits of a frontier
_IDLE_C = 35.0
_RUN_POWER = 0.004  # by which the power of one run differs from another's, as the presets assume
_READING_W = 2.5  # standard deviation of a reading, as of the presets' gauges
_NOISE = 0.01  # of the times and powers of one that a job tells: those of a sweep


@dataclass(frozen=True, slots=True)
class Job:
    """A job.

    Attributes:
        name: of the job.
        task: that it runs again and again.
        gpus: names of those that it runs on, all of one model; they wait for each other.
        arrives_s: when it arrives.
        work_s: for how long it would run without limits.
        tells: whether it tells its frontier.
    """

    name: str
    task: Task
    gpus: tuple[str, ...]
    arrives_s: float
    work_s: float
    tells: bool = True


@dataclass(slots=True)
class _Run:
    """A job that runs, with the work done on each GPU, in seconds of its time without limits."""

    job: Job
    told: Frontier
    default_s: float
    began_s: float
    power_factor: float
    done_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Day:
    """What came of a day.

    Attributes:
        lost_gpu_s: time that jobs took longer than they would have without limits, times their GPUs.
        ideal_gpu_s: what they would have taken.
        most_over_w: by how much the true power of a second was above the budget at most; negative: it never was.
        changes: limits that were set.
        over_limits_w: by how much the limits in force added up to more than the budget at most.
        by_job: for each job, the time that it lost, relative to what it would have taken.
    """

    lost_gpu_s: float
    ideal_gpu_s: float
    most_over_w: float
    changes: int
    over_limits_w: float
    by_job: Mapping[str, float]

    @property
    def lost(self) -> float:
        """The time lost, relative."""
        return self.lost_gpu_s / self.ideal_gpu_s


class Node:
    """GPUs by name.

    Args:
        presets: of each, by name.
        seed: of their noise.
    """

    def __init__(self, presets: Mapping[str, str], seed: int) -> None:
        self.seed, self.devices = seed, {name: open_device(f"sim:{preset}") for name, preset in presets.items()}
        self.limits_w = {name: device.clocks.power_limits_w() for name, device in self.devices.items()}
        self.set_w = {name: high for name, (_, high) in self.limits_w.items()}
        self.obeys, self.reads = dict.fromkeys(presets, True), dict.fromkeys(presets, True)
        self.drawn_w = dict.fromkeys(presets, 0.0)
        self._in_force_w, self._rng = {**self.set_w}, np.random.default_rng(seed)
        self._points = dict[object, OperatingPoint]()

    def set_limit(self, name: str, watts: float) -> None:
        """Set a limit, as a driver does; one that does not obey answers success all the same."""
        self.set_w[name] = watts
        self._in_force_w[name] = watts if self.obeys[name] else self.limits_w[name][1]

    def advance(self, seconds: float, running: Mapping[str, _Run | None]) -> None:
        """Let time pass, for the jobs as fast as the slowest of their GPUs."""
        work_s = dict[int, list[float]]()
        for name, device in self.devices.items():
            run = running[name]
            if run is None:
                self.drawn_w[name] = device.engine.physics.idle_power_w(AUTO, _IDLE_C)
                continue
            point = self.point(name, run.job.task, self._in_force_w[name])
            self.drawn_w[name] = point.power_w * run.power_factor
            work_s.setdefault(id(run), []).append(seconds * run.default_s / point.time_s)
        for run in {id(run): run for run in running.values() if run is not None}.values():
            run.done_s += min(work_s[id(run)])

    def point(self, name: str, task: Task, limit_w: float | None = None) -> OperatingPoint:
        """Time and power of a task at a limit, or without."""
        device = self.devices[name]
        asked = device.identity.name, task.name, limit_w
        if asked not in self._points:
            self._points[asked] = device.truth(task, Setting(power_limit_w=limit_w))
        return self._points[asked]

    def read_w(self, name: str) -> float | None:
        """What a GPU says of its power over the last second."""
        return self.drawn_w[name] + _READING_W * float(self._rng.standard_normal()) if self.reads[name] else None

    def frontier(self, job: Job, noise: float = 0.0) -> list[tuple[float, float]]:
        """Watts that a job draws at each limit, and its time, relative to that without limits; by a sweep, or the truth."""
        rng = np.random.default_rng([self.seed, *map(ord, job.name)])
        low_w, high_w = self.limits_w[job.gpus[0]]
        default_s = self.point(job.gpus[0], job.task).time_s
        points = []
        for watts in np.arange(low_w, high_w + 1.0, _STEP_W if noise == 0.0 else 10 * _STEP_W).tolist():
            point, scatter = self.point(job.gpus[0], job.task, watts), np.exp(noise * rng.standard_normal(2))
            points.append((float(point.power_w * scatter[0]), float(point.time_s / default_s * scatter[1])))
        return points


def told(points: Sequence[tuple[float, float]]) -> Frontier:
    """A frontier as a client tells it: the hull of time and energy, as ``wastenot apply`` does."""
    hull = choice([(seconds, watts * seconds) for watts, seconds in points]).hull()
    return tuple((joules / seconds, seconds) for seconds, joules in zip(hull.time_s[::-1], hull.energy_j[::-1], strict=True))


Policy = Callable[[float, Mapping[str, "_Run | None"]], Mapping[str, float]]
"""Limits to set now, by GPU, given the time and the jobs that run."""


def by_budget(node: Node, budget: Budget) -> Policy:
    """The daemon's."""

    def turn(now_s: float, running: Mapping[str, _Run | None]) -> Mapping[str, float]:
        seen = {}
        for name in node.devices:
            run = running[name]
            frontier, user = ((), None) if run is None or not run.told else (run.told, run.job.name)
            seen[name] = Seen(node.limits_w[name], node.set_w[name], node.read_w(name), frontier=frontier, user=user)
        return budget.turn(now_s, seen)

    return turn


def equal_shares(node: Node, budget_w: float) -> Policy:
    """The same limit for every GPU, as far as its range allows."""
    limits_w = dict(zip(node.devices, filled(budget_w, [*node.limits_w.values()], [1] * len(node.devices)), strict=True))
    return lambda now_s, running: limits_w


def by_power(node: Node, budget_w: float) -> Policy:
    """Limits in proportion to what each GPU would draw without any, which is known at once."""

    def turn(now_s: float, running: Mapping[str, _Run | None]) -> Mapping[str, float]:
        wants_w = {
            name: node.limits_w[name][0] if run is None else node.point(name, run.job.task).power_w
            for name, run in running.items()
        }

        def scaled(factor: float) -> dict[str, float]:
            return {
                name: min(max(factor * want, node.limits_w[name][0]), node.limits_w[name][1])
                for name, want in wants_w.items()
            }

        factors = np.geomspace(0.05, 20.0, 4000)
        place = bisect.bisect_right(factors, budget_w, key=lambda factor: sum(scaled(factor).values()))
        return scaled(float(factors[max(place - 1, 0)]))

    return _when_jobs_change(turn)


def known_in_full(node: Node, budget_w: float) -> Policy:
    """The exact optimum of the composed frontiers as they truly are, at once whenever a job begins or ends.

    An idle GPU counts at the lowest limit that it can be given.
    """

    def turn(now_s: float, running: Mapping[str, _Run | None]) -> Mapping[str, float]:
        limits_w = {name: node.limits_w[name][0] for name, run in running.items() if run is None}
        runs = list({id(run): run for run in running.values() if run is not None}.values())
        if not runs:
            return limits_w
        ways = []
        for run in runs:
            low_w, high_w = node.limits_w[run.job.gpus[0]]
            grid = np.arange(low_w, high_w + 1.0, _STEP_W)
            times = [seconds for _, seconds in node.frontier(run.job)]
            ways.append(repeat(choice([*zip(grid, times, grid, strict=True)]), len(run.job.gpus)))
        best = sequence(*ways).least_energy(within_s=budget_w - sum(limits_w.values()))
        for run, watts in zip(runs, best.choices, strict=True):
            limits_w |= dict.fromkeys(run.job.gpus, float(watts))
        return limits_w

    return _when_jobs_change(turn)


def _when_jobs_change(turn: Policy) -> Policy:
    """A policy that is asked only then."""
    last: list[object] = [None, {}]

    def asked(now_s: float, running: Mapping[str, _Run | None]) -> Mapping[str, float]:
        now = [*map(id, running.values())]
        if now != last[0]:
            last[:] = now, turn(now_s, running)
        return last[1]

    return asked


def run_day(
    node: Node,
    jobs: Sequence[Job],
    policy: Policy,
    budget_w: float,
    seconds: float = 86400.0,
    events: Mapping[float, Callable[[], None]] | None = None,
    settled_s: float = 30.0,
) -> Day:
    """Let jobs come and end; after the day, what still runs is let run on.

    Args:
        node: the GPUs.
        jobs: in any order.
        policy: that sets limits.
        budget_w: that is kept.
        seconds: of the day.
        events: something that happens to the GPUs, by time.
        settled_s: from when on power and limits are compared with the budget: GPUs are found without limits.
    """
    waiting = sorted(jobs, key=lambda job: job.arrives_s)
    running: dict[str, _Run | None] = dict.fromkeys(node.devices)
    lost, changes, now_s, changed_s, over_w, over_limits_w = dict[str, float](), 0, 0.0, 0.0, -np.inf, -np.inf
    happens = dict(sorted((events or {}).items()))
    while waiting or any(running.values()) or now_s < seconds:
        while happens and next(iter(happens)) <= now_s:
            happens.pop(next(iter(happens)))()
            changed_s = now_s
        for job in tuple(waiting):
            if job.arrives_s <= now_s and not any(running[gpu] for gpu in job.gpus):
                waiting.remove(job)
                _begin(node, job, running, now_s)
                changed_s = now_s
        for name, watts in policy(now_s, running).items():
            if watts != node.set_w[name]:
                node.set_limit(name, watts)
                changes, changed_s = changes + 1, now_s
        turn_s = 1.0 if now_s - changed_s < _LOOKS_S else 10.0
        now_s += turn_s
        node.advance(turn_s, running)
        if now_s > settled_s:
            over_w = max(over_w, sum(node.drawn_w.values()) - budget_w)
            over_limits_w = max(over_limits_w, sum(node.set_w.values()) - budget_w)
        for run in {id(run): run for run in running.values() if run is not None}.values():
            if run.done_s >= run.job.work_s:
                running |= dict.fromkeys(run.job.gpus)
                changed_s = now_s
                lost[run.job.name] = (now_s - run.began_s) / run.job.work_s - 1.0
    ideal = {job.name: len(job.gpus) * job.work_s for job in jobs}
    lost_gpu_s = sum(lost[name] * gpu_s for name, gpu_s in ideal.items())
    return Day(lost_gpu_s, sum(ideal.values()), float(over_w), changes, float(over_limits_w), lost)


def _begin(node: Node, job: Job, running: dict[str, _Run | None], now_s: float) -> None:
    frontier = told(node.frontier(job, _NOISE)) if job.tells else ()
    factor = float(np.exp(_RUN_POWER * np.random.default_rng([node.seed, *map(ord, job.name)]).standard_normal()))
    run = _Run(job, frontier, node.point(job.gpus[0], job.task).time_s, now_s, factor)
    running |= dict.fromkeys(job.gpus, run)


def task(name: str, **shape: object) -> Task:
    """An iteration, or a step, of a model."""
    workload = build_workload(name, **shape)
    return Task(workload.name, tuple((kernel, kernel.count) for kernel in workload.kernels))
