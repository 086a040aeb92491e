"""Regret where runs of a job overlap, on Zeus' traces: ours beside Zeus'.

The job comes in bursts (``simulation/overlapping.py`` says how arrivals are drawn), with one, two or four runs of the best
pair in flight on average. Zeus' policy runs in its own simulator of overlapping runs, with the same arrivals, and in ours;
beside others, it runs with the batch size of the cheapest run so far. In its simulator, all runs last equally long, however
they were run: as long as one of the best pair here. In ours they last as long as their epochs. Costs of all runs count.

    python -m benchmarks.bench_jobs_overlap SEEDS     # keeps what was found in data/jobs
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.kept import DATA, keep
from benchmarks.verdict import Verdict, run_alone
from benchmarks.zeus_jobs import TRACES, ZeusJob, ZeusPolicy, read_jobs, zeus_overlapping
from wastenot.core.arrays import FloatArray
from wastenot.jobs.judge.compare import POLICIES
from wastenot.jobs.judge.overlapping import arrivals, best_run_s, simulate_overlapping

LOADS = (1.0, 2.0, 4.0)
KEPT = DATA / "jobs" / "overlap-v100.json"
NAMES = ("Zeus", "Zeus here", "wastenot")


def regrets(job: ZeusJob, load: float, seed: int) -> tuple[float, float, float, float]:
    """At the end: Zeus in its simulator, in ours, and ours; and how many other runs there were when one of ours began."""
    trace = job.trace
    when = arrivals(trace, job.recurrences, seed, load=load)
    zeus = float(zeus_overlapping(job, when, best_run_s(trace), seed))
    here = simulate_overlapping(trace, lambda each: ZeusPolicy(each, job.job, seed, overlapping=True), when, seed)
    ours = simulate_overlapping(trace, POLICIES["wastenot"], when, seed)
    return zeus, float(here.recurrences.regret[-1]), float(ours.recurrences.regret[-1]), ours.in_flight


def main(verdict: Verdict, seeds: int = 20, out: Path | None = None) -> None:
    if not TRACES.exists():
        print("  skipped: Zeus' traces are not here")
        return
    jobs, rows = read_jobs(), []
    for load in LOADS:
        means = []
        for job in jobs:
            found: FloatArray = np.array([regrets(job, load, seed) for seed in range(seeds)])
            mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(seeds)
            means.append(mean)
            cells_kept = {name: [round(mean[at], 4), round(error[at], 4)] for at, name in enumerate(NAMES)}
            rows.append({"load": load, "job": job.trace.terms.name, "others": round(mean[3], 2), "regret": cells_kept})
            cells = ", ".join(f"{name} {mean[place]:.2f} ± {error[place]:.2f}" for place, name in enumerate(NAMES))
            print(f"  load {load:g}, {job.trace.terms.name:<30} {cells}; beside {mean[3]:.1f} others", flush=True)
        zeus, here, ours, _ = np.array(means).T
        verdict.at_most(f"regret against Zeus', all jobs together, load {load:g}", float(ours.sum() / zeus.sum()), 0.5)
        verdict.at_most(f"regret against Zeus' here, all jobs together, load {load:g}", float(ours.sum() / here.sum()), 0.5)
        print(f"         mean of the jobs' ratios: {np.mean(ours / zeus):.3g}, here {np.mean(ours / here):.3g}")
    if out:
        kept = {
            "what": "regret, with its standard error, where runs overlap, on Zeus' V100 traces; derived numbers",
            "date": datetime.now(UTC).date().isoformat(),
            "command": f"python -m benchmarks.bench_jobs_overlap {seeds}",
            "seeds": seeds,
            "rows": rows,
        }
        keep(out, kept)


if __name__ == "__main__":
    run_alone(main, *map(int, sys.argv[1:2]), KEPT)
