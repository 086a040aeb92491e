"""How fast the simulator of a cluster is: requests a second on one core, with 1,000 instances that each follow a clock rule.

Lengths are like those of conversations (medians of 1,000 and 130 tokens), arrivals Poisson, the controller visits each 5 s,
and energy, clocks and the timeline are on. Counted is processor time, the best of several runs, since others may use this
machine. Each load runs in a process of its own, which compiles first, so that its memory is its own.

A day of a large service is not simulated here but extrapolated, and said so.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks.verdict import Verdict
from wastenot.stack.serving.cluster.model import (
    Action,
    ChangeTimes,
    ClockRule,
    Cluster,
    ClusterView,
    Router,
    SetClock,
    Start,
)
from wastenot.stack.serving.cluster.simulation import core
from wastenot.stack.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.stack.serving.engine import Engine
from wastenot.stack.serving.loads import LogNormal, poisson
from wastenot.stack.serving.profile_file import read_engine

PROFILE = Path(__file__).parents[1] / "data" / "serving" / "llama-8b-sim-h200.json"
REQUESTS_PER_S = 1_000_000
MOST_MIB = 1024
REQUESTS = 1_000_000
LOADS = ((100, 5.0), (1000, 2.0), (1000, 5.0), (4000, 5.0))
"""Instances, and requests a second of each."""
DAY = 170_000_000
_REPEATS = 3


@dataclass
class Ramp:
    """All instances from the beginning, at clocks that rise with the batch; each visit changes the rule of some."""

    count: int
    name: str = "ramp"
    period_s: float = 5.0

    def begin(self, cluster: Cluster) -> Sequence[Action]:
        """One pool."""
        engine = cluster.layouts[0]
        self.rules = [ramp(engine, lowest) for lowest in (4, 6, 8)]
        self.visits = 0
        return [Start(0, 0, self.rules[1]) for _ in range(self.count)]

    def control(self, view: ClusterView) -> Sequence[Action]:
        """One instance in ten has another rule, others each time."""
        self.visits += 1
        rule = self.rules[self.visits % len(self.rules)]
        return [SetClock(each, rule) for each in range(self.visits % 10, self.count, 10)]


def ramp(engine: Engine, lowest: int) -> ClockRule:
    """A higher clock for each eight requests in the batch, and nearly the highest for prompts."""
    highest = len(engine.tables.settings) - 1
    return ClockRule(np.minimum(lowest + np.arange(engine.most_running + 1) // 8, highest), highest - 3)


def run(instances: int, rate_per_s: float, router: Router) -> None:
    """Print requests a second of all that a call does and of its core, and the most memory of the process, in MiB."""
    engine = read_engine(PROFILE).engine()
    cluster = Cluster((engine,), -(-instances // 8), ChangeTimes((35.0,)))
    prompt, output = LogNormal(1000, 0.8, 7000), LogNormal(130, 0.8, 1000)
    simulate_cluster(poisson(20.0, 5.0, prompt, output), cluster, Ramp(4), router=router)
    requests = poisson(instances * rate_per_s, REQUESTS / (instances * rate_per_s), prompt, output, seed=1)
    inside, spent_s = core.run, [0.0]

    def timed(state: core.State, until_s: float) -> int:
        began = process_time()
        why = inside(state, until_s)
        spent_s[0] += process_time() - began
        return why

    core.run = timed
    best_s = best_core_s = float("inf")
    for _ in range(_REPEATS):
        spent_s[0], began = 0.0, process_time()
        simulate_cluster(requests, cluster, Ramp(instances), router=router)
        best_s, best_core_s = min(best_s, process_time() - began), min(best_core_s, spent_s[0])
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(len(requests) / best_s, len(requests) / best_core_s, peak_mib)


def main(verdict: Verdict) -> None:
    for instances, rate_per_s in LOADS:
        for router in Router if instances == 1000 else (Router.LEAST_REQUESTS,):
            call = f"from benchmarks.bench_cluster_speed import *; run({instances}, {rate_per_s}, Router({int(router)}))"
            done = subprocess.run([sys.executable, "-c", call], check=True, timeout=600, capture_output=True, text=True)
            whole, alone, peak_mib = map(float, done.stdout.split())
            print(
                f"  {instances:,} instances, {rate_per_s:g} requests/s each, {router.name.lower()}: {whole:,.0f} requests a "
                f"second with setting up and adding up, {alone:,.0f} without, {peak_mib:,.0f} MiB",
                flush=True,
            )
            if instances == 1000 and router == Router.LEAST_REQUESTS:
                verdict.at_least(f"1,000 instances at {rate_per_s:g}/s: requests a second", alone, REQUESTS_PER_S)
                verdict.at_most(f"1,000 instances at {rate_per_s:g}/s: MiB of the process", peak_mib, MOST_MIB)
                print(f"  a day of {DAY:,} requests, extrapolated: {DAY / alone:,.0f} s on one core", flush=True)


if __name__ == "__main__":
    main(Verdict())
