"""Large problems: 10,000 kernels × 100 options to a certified gap of 1e-6, each kind in a new process."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import numpy as np

from benchmarks.verdict import Verdict
from testbed.knapsack_instances import GENERATORS, budget_s
from wastenot.frontiers.knapsack import Knapsack

KERNELS, OPTIONS, GAP = 10_000, 100, 1e-6
LOOSENESS = (0.0005, 0.01, 0.1)


def solve_one(kind: str) -> None:
    """Solve at a few budgets; print seconds, gap and peak memory of each as JSON."""
    rng = np.random.default_rng(7)
    groups = GENERATORS[kind](rng, KERNELS, OPTIONS)
    results = []
    for looseness in LOOSENESS:
        budget = budget_s(groups, looseness)
        began = time.perf_counter()
        plan = Knapsack(groups).least_energy(budget, gap_tolerance=GAP)
        seconds = time.perf_counter() - began
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        results.append({"seconds": seconds, "gap": plan.gap, "peak_bytes": peak_bytes})
    print(json.dumps(results))


def main(verdict: Verdict) -> None:
    for kind in GENERATORS:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.bench_scale", kind], check=True, capture_output=True, text=True
        )
        results = json.loads(done.stdout)
        label = f"{KERNELS:,} kernels x {OPTIONS} options, {kind}"
        verdict.at_most(f"{label}: certified gap", max(result["gap"] for result in results), GAP)
        verdict.at_most(f"{label}: seconds", max(result["seconds"] for result in results), 0.5)
        verdict.at_most(f"{label}: GB", max(result["peak_bytes"] for result in results) / 1e9, 2)


if __name__ == "__main__":
    solve_one(sys.argv[1])
