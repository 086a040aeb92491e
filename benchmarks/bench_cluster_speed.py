"""How fast the simulator of a cluster is: a day of 1,000 instances that each follow a clock rule, on one core.

Lengths are like those of conversations (medians of 1,000 and 130 tokens), arrivals Poisson, the controller visits each 5 s,
and energy, clocks and the timeline are on. The day comes in parts, so that memory does not grow; it runs in a process
of its own, which compiles first. A week of 4,000 GPUs is extrapolated from it, and said so.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from benchmarks.kept import DATA, keep
from benchmarks.verdict import Verdict
from wastenot.serving.cluster.model import (
    Action,
    ChangeTimes,
    ClockRule,
    Cluster,
    ClusterView,
    SetClock,
    Start,
)
from wastenot.serving.cluster.simulation.simulate import Answers, ClusterRun, simulate_cluster
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.model.requests import Requests

PROFILE = DATA / "serving" / "llama-8b-sim-h200.json"
PROMPT, OUTPUT = LogNormal(1000, 0.8, 7000), LogNormal(130, 0.8, 1000)
REQUESTS = 1_000_000
DAY_S, DAY_PARTS = 86_400.0, 170
"""A day, its requests in parts of a million each, one after the other."""
DAY_MOST_S, DAY_MOST_MIB = 300.0, 4096
WEEK_GPUS = 4000
KEPT = DATA / "serving" / "cluster-speed.json"


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


def run_parts(instances: int, rate_per_s: float, parts: int) -> None:
    """Print requests, seconds of wall time and the most memory of the process in MiB; the requests come in parts."""
    engine = read_engine(PROFILE).engine()
    cluster = Cluster((engine,), -(-instances // 8), ChangeTimes((35.0,)))
    lasts_s = REQUESTS / (instances * rate_per_s)

    def drawn() -> Iterator[Requests]:
        for part in range(parts):
            requests = poisson(instances * rate_per_s, lasts_s, PROMPT, OUTPUT, seed=part)
            yield replace(requests, arrival_s=requests.arrival_s + part * lasts_s)

    count = 0

    def answered(requests: Requests, answers: Answers) -> None:
        nonlocal count
        assert (answers.finish_s > requests.arrival_s).all()
        count += len(requests)

    simulate_cluster(poisson(20.0, 5.0, PROMPT, OUTPUT), cluster, Ramp(4))
    began = perf_counter()
    ClusterRun(drawn(), cluster, Ramp(instances), answered).served()
    print(count, perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def of_a_process(call: str) -> list[float]:
    """The numbers that a call in a process of its own prints."""
    command = [sys.executable, "-c", f"from benchmarks.bench_cluster_speed import *; {call}"]
    done = subprocess.run(command, check=True, timeout=600, stdout=subprocess.PIPE, text=True)
    return [float(each) for each in done.stdout.split()]


def main(verdict: Verdict) -> None:
    rate_per_s = DAY_PARTS * REQUESTS / DAY_S
    count, took_s, peak_mib = of_a_process(f"run_parts(1000, {rate_per_s / 1000}, {DAY_PARTS})")
    week_s = 7 * WEEK_GPUS / 1000 * took_s
    print(
        f"  a day of 1,000 instances, {count:,.0f} requests, drawing them too: {took_s:.0f} s of wall time on one core, ",
        end="",
    )
    print(f"{peak_mib:,.0f} MiB; a week of {WEEK_GPUS:,} instances of one GPU, extrapolated: {week_s / 3600:.1f} h")
    verdict.at_most("a day of 1,000 instances: seconds", took_s, DAY_MOST_S)
    verdict.at_most("a day of 1,000 instances: MiB of the process", peak_mib, DAY_MOST_MIB)
    kept = {"instances": 1000, "requests": int(count), "day_s": round(took_s, 1), "peak_mib": round(peak_mib)}
    keep(KEPT, kept)
