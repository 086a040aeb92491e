"""Stragglers: looking a plan up, noticing a slow pipeline, telling ranks, and what is saved against waiting.

Seeds are apart from those of the tests; those from 1000 on shaped nothing. The demo is simulated: times and energies of
plans with noise, in virtual time. Reaction is measured on this machine, over a Unix socket and TCP.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarks.verdict import Verdict
from testbed.binomial import share_bounds
from testbed.straggling import Job, planned_frontier
from wastenot.control.level import Level
from wastenot.pipelines.plan.plan import PipelinePlan
from wastenot.pipelines.plan.straggler import Rungs
from wastenot.pipelines.run.straggler_server import StragglerServer
from wastenot.pipelines.run.straggler_source import StragglerSource
from wastenot.pipelines.run.straggler_wire import ask
from wastenot.pipelines.run.stragglers import LEAD, Stragglers

SEEDS = range(1000, 1200)
NOISES = (0.002, 0.005, 0.01, 0.02)
SLOWER = (1.03, 1.05, 1.1, 1.2)
QUIET = 500  # iterations of each seed without a straggler
WITHIN = 30  # iterations
RANKS = (8, 64, 512)
TOLD = 30  # times that each number of ranks is told


def main(verdict: Verdict) -> None:
    look_up(verdict)
    notice(verdict)
    react(verdict)
    saved, later = demo(planned_frontier(4, 16, 60))
    verdict.at_least("energy that the server saves in the demo against waiting with the plan, in %", 100.0 * saved, 1.0)
    verdict.at_most("time that it costs, in %", 100.0 * later, 0.3)


def look_up(verdict: Verdict) -> None:
    """Time to find the plans of 1, 4 and 64 replicas among 100."""
    rungs, rng = Rungs(planned_frontier(4, 16, 100)), random.Random(7)
    for replicas in (1, 4, 64):
        asked = [[rng.uniform(1.0, 1.5) for _ in range(replicas)] for _ in range(2000)]
        began_s = time.perf_counter()
        for factors in asked:
            rungs.answer(factors, 0.01)
        took_us = 1e6 * (time.perf_counter() - began_s) / len(asked)
        verdict.at_most(f"µs to look up the plans of {replicas} replicas among {len(rungs)}", took_us, 1000.0)


def notice(verdict: Verdict) -> None:
    """Changes without a straggler, and iterations until one is noticed."""
    for noise in NOISES:
        false = sum(_false(noise, seed) for seed in SEEDS)
        number = len(SEEDS) * QUIET
        what = f"false changes of plans in 10,000 iterations, noise {noise:.1%}, {number:,} iterations of {len(SEEDS)} seeds"
        verdict.at_most(what, 1e4 * false / number, 1.0)
        print(f"         {false} of {number}: 95 % {', '.join(f'{1e4 * b:.2f}' for b in share_bounds(false, number))}")
        for slower in SLOWER:
            delays = [_delays(noise, slower, seed) for seed in SEEDS]
            for shift, which in (("slower", 0), ("as before", 1)):
                found = sorted(math.inf if each[which] is None else each[which] for each in delays)
                hits = sum(map(math.isfinite, found))
                low, high = share_bounds(hits, len(found))
                what = f"noise {noise:.1%}, {slower - 1.0:.0%} {shift}: noticed within {WITHIN} iterations"
                verdict.at_least(what, hits / len(found), 0.95 if slower > 1.04 else 0.0)
                print(
                    f"         {hits} of {len(found)}, 95 % {low:.3f} to {high:.3f}; at the end of iteration "
                    f"{statistics.median(found):g} (median; worst {found[-1]:g})"
                )


def _drawn(rng: random.Random, noise: float, factor: float = 1.0) -> float:
    """An iteration; one in 200 has something else in it, such as a checkpoint."""
    pause = rng.uniform(1.1, 3.0) if rng.random() < 0.005 else 1.0
    return factor * pause * math.exp(rng.gauss(0.0, noise))


def _false(noise: float, seed: int) -> int:
    rng, level, false = random.Random(seed), Level(), 0
    for _ in range(80):
        level.learn(_drawn(rng, noise))
    for _ in range(QUIET):
        before = level.held
        level.learn(_drawn(rng, noise))
        false += abs(level.held - before) > 0.015
    return false


def _delays(noise: float, slower: float, seed: int) -> tuple[int | None, int | None]:
    rng, level = random.Random(seed), Level()
    for _ in range(40):
        level.learn(_drawn(rng, noise))
    up = _until(level, rng, noise, slower, lambda: level.held > 0.5 * math.log(slower))
    for _ in range(40):
        level.learn(_drawn(rng, noise, slower))
    return up, _until(level, rng, noise, 1.0, lambda: level.held < 0.5 * math.log(slower))


def _until(level: Level, rng: random.Random, noise: float, factor: float, true: Any) -> int | None:
    for count in range(1, WITHIN + 1):
        level.learn(_drawn(rng, noise, factor))
        if true():
            return count
    return None


def react(verdict: Verdict) -> None:
    """Milliseconds from telling the server until the last of its ranks has the new plan."""
    plan = planned_frontier(4, 16, 60)
    for ranks in RANKS:
        for over_tcp in (False, True):
            took_ms = sorted(_reactions(plan, ranks, over_tcp))
            over = "TCP" if over_tcp else "a Unix socket"
            what = f"ms from told until all of {ranks} ranks have the plan, over {over}: median of {len(took_ms)}"
            verdict.at_most(what, statistics.median(took_ms), 100.0)
            print(f"         worst {took_ms[-1]:.2f} ms, a tenth above {took_ms[int(0.9 * len(took_ms))]:.2f} ms")


def _reactions(plan: PipelinePlan, ranks: int, over_tcp: bool) -> Iterator[float]:
    replicas, token = max(ranks // 4, 2), "a token of a benchmark"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        address = "127.0.0.1:0" if over_tcp else os.path.join(folder, "s.sock")
        stragglers = Stragglers(Rungs(plan), replicas, 4)
        server = stack.enter_context(StragglerServer(stragglers, address, token=token if over_tcp else None))
        known = token if over_tcp else None
        sources = [StragglerSource(server.address, index // 4, index % 4, token=known) for index in range(ranks)]
        for source in sources:
            stack.callback(source.close)
        others = sources[4:]  # the straggler itself keeps its plan
        for count in range(TOLD):
            told_s = time.monotonic()
            message = {"ask": "tell", "replica": 0, "slower": 0.3} if count % 2 == 0 else {"ask": "clear"}
            ask(server.address, message, known)
            end_s = told_s + 10.0
            while min(source.heard_s for source in others) < told_s:
                if time.monotonic() > end_s:
                    raise TimeoutError("a rank was not told")
                time.sleep(0.0005)
            yield 1e3 * (max(source.heard_s for source in others) - told_s)
            threading.Event().wait(0.02)


@dataclass(slots=True)
class _Arm:
    """One way to run the replicas."""

    energy_j: list[float] = field(default_factory=list)
    time_s: list[float] = field(default_factory=list)


def throttling(iteration: int) -> float:
    """Times as long as planned: a GPU of a replica is heated up by its neighbour, throttles, and recovers in steps."""
    if not 60 <= iteration < 260:
        return 1.0
    return 1.12 if iteration < 100 else 1.25 if iteration < 200 else 1.08


def demo(
    plan: PipelinePlan, *, iterations: int = 360, replicas: int = 4, noise: float = 0.004, seed: int = 200
) -> tuple[float, float]:
    """Four replicas, one of which throttles for a while: what the server saves against waiting, and the time it costs."""
    print(f"  simulated: {replicas} replicas, replica 2 is 12 %, 25 %, then 8 % slower for 200 of {iterations} iterations")
    rungs = Rungs(plan)
    stragglers = Stragglers(rungs, replicas, 1)
    job, arms = Job(stragglers, replicas, ranks=1), {"server": _Arm(), "waits": _Arm(), "default": _Arm()}
    rng, waiting_w = random.Random(seed), plan.waiting_w * plan.gpus
    for iteration in range(iterations):
        factors = [
            math.exp(rng.gauss(0.0, noise)) * (throttling(iteration) if each == 2 else 1.0) for each in range(replicas)
        ]
        ran = tuple(job.rung(each, iteration) for each in range(replicas))
        for name, arm in arms.items():
            if name == "default":
                times = [factor * plan.baseline.time_s for factor in factors]
                energies = [plan.baseline.energy_j] * replicas
            else:
                chosen = ran if name == "server" else (rungs.own,) * replicas
                times = [factor * rungs.time_s[rung] for factor, rung in zip(factors, chosen, strict=True)]
                energies = [rungs.energy_j[rung] for rung in chosen]
            until_s = max(times)
            arm.time_s.append(until_s)
            arm.energy_j.append(sum(e + waiting_w * (until_s - t) for e, t in zip(energies, times, strict=True)))
        for replica, factor in enumerate(factors):
            job.take(stragglers.report(replica, 0, iteration, factor, sum(arms["server"].time_s)))
        job.iteration += 1
    total = {name: (sum(arm.energy_j), sum(arm.time_s)) for name, arm in arms.items()}
    slow = [i for i in range(iterations) if throttling(i) > 1.0]
    during = {name: sum(arm.energy_j[i] for i in slow) for name, arm in arms.items()}
    for event in stragglers.events:
        if event["kind"] in ("measured", "ordered"):
            print(
                f"    iteration {event['iteration']:>3}, {event['at_s']:8.1f} s: replica {event['replica']}: {event['text']}"
            )
    words = {"server": "with the server", "waits": "own plan, waiting", "default": "default clocks, waiting"}
    for name, (energy_j, time_s) in total.items():
        print(f"    {words[name]:<24} {energy_j / 1e6:8.4f} MJ in {time_s:8.1f} s")
    for name, what in (("waits", "waiting with the plan"), ("default", "the default clocks")):
        whole, while_slow = 1.0 - total["server"][0] / total[name][0], 1.0 - during["server"] / during[name]
        print(f"    saved against {what}: {whole:.2%} of all, {while_slow:.2%} while a replica is slow")
    later = total["server"][1] / total["waits"][1] - 1.0
    print(f"    time {later:+.3%}: plans change {LEAD} iterations after a recovery is noticed")
    return 1.0 - total["server"][0] / total["waits"][0], later
