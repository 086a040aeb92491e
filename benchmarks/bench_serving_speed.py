"""How fast the simulator of serving is: requests a second of one engine and of 1,000 behind a router, on one core.

Lengths are like those of conversations (medians of 1,000 and 130 tokens), arrivals Poisson. Counted is processor time, the
best of several runs, each in a process of its own that compiles first, since others may use this machine.

    python -m benchmarks serving-speed [TREE ...]

Other checkouts of this repository are measured beside this one, in turns: what a change of the simulator costs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.verdict import Verdict

HERE = Path(__file__).parents[1]
PROFILE = HERE / "data" / "serving" / "llama-8b-sim-h200.json"
TURNS = 4
LEAST = 0.9
"""Of the requests a second of each other tree."""

_BEGIN = """
from time import process_time
import numpy as np
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.simulation.policy import Choice, Fixed
from wastenot.serving.simulation.simulate import simulate
engine = read_engine(%r).engine()
PROMPT, OUTPUT = LogNormal(1000, 0.8, 7000), LogNormal(130, 0.8, 1000)
def measured(run, requests):
    run(poisson(2.0, 20.0, PROMPT, OUTPUT))
    best_s = float("inf")
    for _ in range(3):
        began = process_time()
        run(requests)
        best_s = min(best_s, process_time() - began)
    print(len(requests) / best_s)
class Turns:
    name = "turns"
    def begin(self, engine, deadlines):
        return 0
    def choose(self, view):
        return Choice(int(view.steps) %% 8 + 8, view.now_s + 0.2)
"""
_CLUSTER = """
from dataclasses import dataclass
from wastenot.serving.cluster.model import ChangeTimes, ClockRule, Cluster, Start
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
class All:
    name, period_s = "all", 5.0
    def begin(self, cluster):
        top = len(engine.tables.settings) - 1
        rule = ClockRule(np.minimum(6 + np.arange(engine.most_running + 1) // 8, top), top - 3)
        return [Start(0, 0, rule)] * 1000
    def control(self, view):
        return []
cluster = Cluster((engine,), 125, ChangeTimes((35.0,)))
measured(lambda requests: simulate_cluster(requests, cluster, All()), poisson(5000.0, 60.0, PROMPT, OUTPUT, seed=1))
"""
_FIXED = "measured(lambda load: simulate(load, engine, Fixed()%s), poisson(%g, %g, PROMPT, OUTPUT, seed=1))"
CASES = {
    "an engine at 1 request/s": _FIXED % ("", 1.0, 40_000.0),
    "an engine at 15 requests/s": _FIXED % ("", 15.0, 8_000.0),
    "an engine at 15 requests/s with a timeline": _FIXED % (", timeline_s=0.25", 15.0, 2_000.0),
    "a policy that is asked at 10 requests/s": _FIXED.replace("Fixed()", "Turns()") % ("", 10.0, 400.0),
    "1,000 engines at 5 requests/s each": _CLUSTER,
}


def requests_per_s(tree: Path, case: str) -> float:
    """Of a case, in a process of its own that imports from a tree."""
    places = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    script = _BEGIN % str(PROFILE) + CASES[case]
    done = subprocess.run([sys.executable, "-c", script], env=places, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def main(verdict: Verdict, *others: str) -> None:
    """This tree, and others beside it."""
    trees = [HERE, *map(Path, others)]
    for case in CASES:
        best = [0.0] * len(trees)
        for _ in range(TURNS):
            best = [max(known, requests_per_s(tree, case)) for known, tree in zip(best, trees, strict=True)]
        beside = "".join(f"; {each:,.0f} in {tree}" for each, tree in zip(best[1:], trees[1:], strict=True))
        print(f"  {case}: {best[0]:,.0f} requests a second{beside}", flush=True)
        for each, tree in zip(best[1:], trees[1:], strict=True):
            verdict.at_least(f"{case}: over {tree}", best[0] / each, LEAST)
