"""One pipeline, Perseus' solver (lowtime) and ours: 8 stages x 64 micro-batches, quanta of 1 ms.

lowtime runs in a process and a Python of its own and takes half an hour; what it found is kept in
``data/pipelines/lowtime-8x64.json``, and ours is run beside that. To run lowtime again:

    python -m venv LOWTIME && LOWTIME/bin/pip install lowtime==0.3.0
    python -m benchmarks.bench_pipeline_lowtime LOWTIME/bin/python

Times are CPU seconds of one thread. Energies and times of both are recomputed from the profile's points
(``pipeline_audit``), never taken from what a solver claims.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import DATA, keep
from benchmarks.lowtime_plans import clocks_of, read_plans
from benchmarks.pipeline_audit import Pipeline, Rows, rows_of
from benchmarks.synthetic_pipeline import SEED, WAITING_W, synthetic_rows
from benchmarks.verdict import Verdict, run_alone
from wastenot.frontiers.graph_rounding import Effort
from wastenot.pipelines.model.iteration_graph import pipeline_graph
from wastenot.pipelines.model.perseus_csv import read_perseus_csv
from wastenot.pipelines.model.schedules import one_forward_one_backward

STAGES, MICRO_BATCHES, UNIT_S, POINTS = 8, 64, 0.001, 100
KEPT = DATA / "pipelines" / "lowtime-8x64.json"
ONE, FRONTIER = 1000.0, 100.0
FRONTIER_EFFORT, FRONTIER_GAP = Effort(steps=330), 0.005  # for improving each of its plans


def write_profile(path: Path) -> None:
    """The synthetic profile as Perseus keeps profiles."""
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["stage", "instruction", "frequency", "time", "energy"])
        writer.writerows(synthetic_rows(STAGES))


def run_lowtime(python: str, folder: Path) -> Path:
    """Runs it with a Python that has it; minutes."""
    out = folder / "lowtime.npz"
    script = Path(__file__).with_name("lowtime_process.py")
    arguments = [str(STAGES), str(MICRO_BATCHES), str(UNIT_S), str(WAITING_W), str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    subprocess.run([python, str(script), str(folder / "profile.csv"), *arguments], check=True, env=environment)
    return out


def summary(found: Path, rows: Rows) -> dict[str, Any]:
    """What is kept of a run: all numbers of about 100 evenly spaced iterations, recomputed."""
    plans = read_plans(found, rows, Pipeline(STAGES, MICRO_BATCHES), WAITING_W)
    taken = np.unique(np.linspace(0, len(plans.time_s) - 1, POINTS).round().astype(int))
    energy = plans.energy_j(WAITING_W, STAGES)
    return {
        "what": "lowtime, its plans recomputed from the measured points of the profile",
        "date": datetime.fromtimestamp(found.stat().st_mtime, UTC).date().isoformat(),
        "lowtime": plans.version,
        "python": platform.python_version(),
        "machine": f"{os.cpu_count()} cores of {platform.machine()}, shared with other work; one thread",
        "command": "python -m benchmarks.bench_pipeline_lowtime LOWTIME/bin/python",
        "profile": f"benchmarks/synthetic_pipeline.py, seed {SEED}",
        "stages": STAGES,
        "micro_batches": MICRO_BATCHES,
        "unit_s": UNIT_S,
        "waiting_w": WAITING_W,
        "iterations": len(plans.time_s),
        "solver_cpu_s": float(plans.cpu_s[-1]),
        "solver_wall_s": plans.wall_s,
        "fit_cpu_s": plans.fit_cpu_s,
        "graph_cpu_s": plans.graph_cpu_s,
        "columns": ["iteration", "claimed_s", "claimed_j", "cpu_s", "time_s", "energy_j"],
        "points": [
            [
                int(at) + 1, float(plans.claimed_s[at]),
                round(float(plans.claimed_cost_j[at] + WAITING_W * STAGES * plans.claimed_s[at]), 4),
                round(float(plans.cpu_s[at]), 3), float(plans.time_s[at]), float(energy[at]),
            ]
            for at in taken
        ],
    }  # fmt: skip


def ours(kept: Mapping[str, Any], profile: Path, rows: Rows) -> dict[str, Any]:
    """Our plan at each of its deadlines."""
    schedule, pipeline = one_forward_one_backward(STAGES, MICRO_BATCHES), Pipeline(STAGES, MICRO_BATCHES)
    began = time.process_time()
    graph = pipeline_graph(schedule, read_perseus_csv(profile, waiting_w=WAITING_W))
    built = time.process_time() - began
    points, seconds = [], []
    for *_, time_s, energy_j in kept["points"]:
        began = time.process_time()
        plan = graph.least_energy(time_s)
        seconds.append(time.process_time() - began)
        found = pipeline.recompute(rows, clocks_of(plan, graph, schedule), WAITING_W)
        assert found.exact_s <= Fraction(time_s), "our plan is late"
        assert plan.lower_bound_j is not None
        points.append([time_s, found.time_s, found.energy_j, plan.lower_bound_j, energy_j])
    anew = pipeline_graph(schedule, read_perseus_csv(profile, waiting_w=WAITING_W))  # knows nothing of the plans above
    began = time.process_time()
    frontier = anew.frontier(POINTS, effort=FRONTIER_EFFORT)
    frontier_s = time.process_time() - began
    gaps = []
    for within_s, plan in zip(frontier.within_s.tolist(), frontier.plans, strict=True):
        found = pipeline.recompute(rows, clocks_of(plan, anew, schedule), WAITING_W)
        assert found.exact_s <= Fraction(within_s), "a plan of our frontier is late"
        assert plan.lower_bound_j is not None
        gaps.append(1.0 - plan.lower_bound_j / found.energy_j)
    return {
        "graph_cpu_s": built,
        "cpu_s": seconds,
        "frontier_cpu_s": frontier_s,
        "frontier_gaps": gaps,
        "columns": ["within_s", "time_s", "energy_j", "bound_j", "lowtime_j"],
        "points": points,
    }


def main(verdict: Verdict, python: str = "", out: Path | None = None) -> None:
    with tempfile.TemporaryDirectory() as name:
        profile = Path(name) / "profile.csv"
        write_profile(profile)
        rows = rows_of(profile)
        if python:
            found = Path(python) if python.endswith(".npz") else run_lowtime(python, Path(name))
            keep(KEPT, summary(found, rows))
        kept = json.loads(KEPT.read_text())
        own = ours(kept, profile, rows)
    if out:
        keep(out, own)
    points = np.array(own["points"])
    once = own["cpu_s"][-1] + own["graph_cpu_s"]
    every = own["frontier_cpu_s"] + own["graph_cpu_s"]
    more = points[:, 2] / points[:, 4] - 1.0
    gaps = 1.0 - points[:, 3] / points[:, 2]
    print(
        f"  CPU: lowtime {kept['solver_cpu_s']:.0f} s; ours {once:.2f} s for its last deadline, {every:.1f} s for a frontier"
    )
    print(f"  ours needs {more.min():+.2%} to {more.max():+.2%} of lowtime's energy, mean {more.mean():+.2%}")
    print(f"  ours is above the bound by {gaps.mean():.3%}, at most {gaps.max():.3%}")
    verdict.at_least("times faster, one deadline", kept["solver_cpu_s"] / once, ONE)
    verdict.at_least(f"times faster, frontier of {POINTS} points", kept["solver_cpu_s"] / every, FRONTIER)
    verdict.at_most("largest gap on that frontier", max(own["frontier_gaps"]), FRONTIER_GAP)
    verdict.at_most("largest excess over lowtime's energy at its deadlines", float(more.max()), 0.0)


if __name__ == "__main__":
    run_alone(main, *sys.argv[1:2], *map(Path, sys.argv[2:3]))
