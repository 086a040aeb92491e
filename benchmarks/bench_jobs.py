"""Regret of policies for jobs that come back, on Zeus' traces of six training jobs: ours beside Zeus'.

Zeus' policy runs in Zeus' own simulator (package ``zeus`` 0.16), with its early stop at twice the cheapest recurrence;
ours in ours. Each has the same jobs, targets, longest trainings, weights, recurrences and seeds, and the same account:
the cost of all runs, those that fail and those that are given up included, less the recurrences times the mean cost of a
run of the best pair, in runs of the best pair. Where the two simulators differ:

- Zeus' learns the limits of a batch size free of noise, in the first epoch, which is divided among all limits. Ours
  measures in slices of seconds, each off by its noise.
- Zeus' knows before a run begins whether an epoch exceeds twice the cheapest recurrence, and skips it free of charge; in
  ours every run pays for its first epoch.
- Both draw a run's epochs from the runs of its batch size in the trace, with equal chances and a generator of its own.

To know what that matters, Zeus' policy runs in our simulator as well. The traces are in ``../shared/data/zeus``.

    python -m benchmarks.bench_jobs SEEDS [ETA ...]     # keeps what was found in data/jobs, for docs/make/judged_jobs.py
    python -m benchmarks.bench_jobs constants SEEDS     # how flat regret is about each constant; chosen leave-one-job-out
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import DATA, keep
from benchmarks.verdict import Verdict, run_alone
from benchmarks.zeus_jobs import TRACES, ZeusJob, ZeusPolicy, read_jobs, zeus_recurrences
from wastenot.core.arrays import FloatArray
from wastenot.jobs.judge.compare import POLICIES as OURS, Choice, PolicyResult, best_pair, summarise
from wastenot.jobs.judge.simulate import Recurrences, simulate
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.model import curve, drift, epochs, reaching
from wastenot.jobs.plan import choice, learner

ETAS = (0.5, 0.0, 0.25, 0.75, 1.0)
STATED = {
    "cifar100": 9.78,
    "imagenet": 4.60,
    "librispeech": 7.84,
    "movielens-1m": 13.58,
    "sentiment140": 1.69,
    "squad": 1.80,
}
"""Zeus' regret at η = 0.5 and 20 seeds as it was found by others, and is found again here."""

KEPT = DATA / "jobs" / "regret-v100.json"

CONSTANTS = (
    (curve, "_ALIKE", (2.5, 6.0)),
    (epochs, "_CRITICAL_MEAN", (0.0, 2.5)),
    (reaching, "_HAZARD", (0.06, 0.25)),
    (choice, "_TELLS", (0.3, 0.7)),
    (learner, "_LEAST_RECURRENCES", (50.0, 200.0)),
    (learner, "_AT_LEAST", (1.2, 2.0)),
    (drift, "_ODDS", (2.0, 20.0)),
)
"""Constants of the policy, each with others that it might have."""

_LEARNING = 60
"""Recurrences, within which nearly all regret comes about."""

Run = Callable[[ZeusJob, float, int], Recurrences]
Found = Mapping[str, Mapping[str, PolicyResult]]
"""Results by job and policy."""


def _zeus_here(job: ZeusJob, eta: float, seed: int) -> Recurrences:
    trace = job.trace.with_terms(eta=eta)
    return simulate(trace, lambda each: ZeusPolicy(each, job.job, seed), job.recurrences, seed)


def _ours(name: str) -> Run:
    def run(job: ZeusJob, eta: float, seed: int) -> Recurrences:
        return simulate(job.trace.with_terms(eta=eta), OURS[name], job.recurrences, seed)

    return run


POLICIES: Mapping[str, Run] = {
    "default": _ours("default"),
    "grid search": _ours("grid search"),
    "Zeus": zeus_recurrences,
    "Zeus here": _zeus_here,
    "wastenot": _ours("wastenot"),
    "oracle": _ours("oracle"),
}


def table(jobs: Sequence[ZeusJob], eta: float, seeds: Sequence[int]) -> Found:
    """Results by job and policy, printed while they come."""
    print(f"  η = {eta:g}, {len(seeds)} seeds: regret in runs of the best pair, ± standard error")
    out: dict[str, dict[str, PolicyResult]] = {}
    for job in jobs:
        trace, began = job.trace.with_terms(eta=eta), time.perf_counter()
        found = {name: summarise(trace, name, [run(job, eta, seed) for seed in seeds]) for name, run in POLICIES.items()}
        out[job.job.dataset] = found
        cells = ", ".join(f"{name} {result.mean:.2f} ± {result.error:.2f}" for name, result in found.items())
        took = time.perf_counter() - began
        print(f"  {trace.terms.name:<30} {job.recurrences:>3} recurrences: {cells} ({took:.0f} s)", flush=True)
    return out


def ends(found: Found, policy: str) -> FloatArray:
    """Mean regret at the end, by job."""
    return np.array([by[policy].mean for by in found.values()])


def kept(jobs: Sequence[ZeusJob], found: Mapping[float, Found], seeds: int) -> dict[str, Any]:
    """What is kept: means, nothing of the traces."""
    rows = []
    for eta, by_job in found.items():
        for job in jobs:
            trace, results = job.trace.with_terms(eta=eta), by_job[job.job.dataset]
            rows.append({
                "eta": eta,
                "job": trace.terms.name,
                "recurrences": job.recurrences,
                "default": trace.terms.default,
                "best": _choice(best_pair(trace)),
                "best_energy": _energy(trace, best_pair(trace)),
                "policies": {
                    name: {
                        "regret": round(result.mean, 4),
                        "error": round(result.error, 4),
                        "choice": _choice(result.choice),
                        "energy": round(result.energy, 4),
                    }
                    for name, result in results.items()
                },
            })  # fmt: skip
    return {
        "what": "policies for jobs that come back on the V100 traces of Zeus' artifact; derived numbers, none of the traces",
        "date": datetime.now(UTC).date().isoformat(),
        "command": " ".join(("python -m benchmarks.bench_jobs", f"{seeds}", *(f"{eta:g}" for eta in found))),
        "zeus": "0.16, its own simulator and policy; 'Zeus here' is its policy in our simulator",
        "seeds": seeds,
        "rows": rows,
    }


def _choice(choice: Choice) -> list[float]:
    return [choice.batch_size, float(choice.setting.power_limit_w or 0.0)]


def _energy(trace: JobTrace, choice: Choice) -> float:
    row, column = trace.terms.batch_sizes.index(choice.batch_size), trace.terms.settings.index(choice.setting)
    energy_j = trace.mean_energy_j()
    return round(float(energy_j[row, column] / energy_j[trace.terms.batch_sizes.index(trace.terms.default), 0]), 4)


def fractions(jobs: Sequence[ZeusJob], zeus: FloatArray, seeds: Sequence[int]) -> FloatArray:
    """Regret of our policy after some recurrences, in terms of Zeus' after all of its own; shape (jobs, seeds)."""
    most = [min(job.recurrences, _LEARNING) for job in jobs]
    ran = [[simulate(job.trace, OURS["wastenot"], n, seed) for seed in seeds] for job, n in zip(jobs, most, strict=True)]
    return np.array([[each.regret[-1] for each in row] for row in ran]) / zeus[:, None]


def constants(seeds: int = 4) -> None:
    """Regret with each constant as it is and otherwise, and what is chosen of it with one job left out at a time."""
    jobs = [job for power in sorted(TRACES.glob("summary_power_*.csv")) for job in read_jobs(power)]
    names = np.array([job.job.dataset for job in jobs])
    zeus = np.array([np.mean([zeus_recurrences(job, 0.5, seed).regret[-1] for seed in range(seeds)]) for job in jobs])
    usual = fractions(jobs, zeus, range(1_000, 1_000 + seeds))
    print(f"  as it is: {usual.mean():.3f} (worst {usual.mean(axis=1).max():.2f})", flush=True)
    for module, name, others in CONSTANTS:
        now, found = getattr(module, name), [usual]
        for value in others:
            setattr(module, name, value)
            found.append(fractions(jobs, zeus, range(1_000, 1_000 + seeds)))
            more = (found[-1] - usual).mean(axis=1)
            error = float(np.sqrt(((found[-1] - usual).var(axis=1, ddof=1) / seeds).sum()) / len(jobs))
            worst = found[-1].mean(axis=1).max()
            print(f"  {name} {value:g} for {now:g}: {more.mean():+.3f} ± {error:.3f} (worst {worst:.2f})", flush=True)
        setattr(module, name, now)
        means = np.array([each.mean(axis=1) for each in found])
        chosen = {each: int(means[:, names != each].mean(axis=1).argmin()) for each in dict.fromkeys(names)}
        left_out = np.mean([means[chosen[each], place] for place, each in enumerate(names)])
        values = ", ".join(f"{each} {(now, *others)[place]:g}" for each, place in chosen.items())
        print(f"  {name} chosen without the job itself: {left_out:.3f}, by job left out: {values}", flush=True)


def main(verdict: Verdict, seeds: int = 20, etas: Sequence[float] = ETAS, out: Path | None = None) -> None:
    if not TRACES.exists():
        print("  skipped: Zeus' traces are not here")
        return
    jobs = read_jobs()
    found = {}
    for eta in etas:
        found[eta] = table(jobs, eta, range(seeds))
        zeus, ours = ends(found[eta], "Zeus"), ends(found[eta], "wastenot")
        if eta == 0.5 and seeds == 20:
            stated = np.array(list(STATED.values()))
            verdict.at_most("Zeus' regret against what was stated of it", float(np.abs(zeus - stated).max()), 0.006)
        verdict.at_most(f"regret against Zeus', mean of the jobs' ratios, η = {eta:g}", float(np.mean(ours / zeus)), 0.5)
        verdict.at_most(f"regret against Zeus', all jobs together, η = {eta:g}", float(ours.sum() / zeus.sum()), 0.5)
        worst = int(np.argmax(ours / zeus))
        name = f"regret against Zeus', the worst job ({list(found[eta])[worst]}), η = {eta:g}"
        if eta == 0.5:
            verdict.at_most(name, float(ours[worst] / zeus[worst]), 1.0)
        else:
            print(f"         {name}: {ours[worst] / zeus[worst]:.4g}")
    if out:
        keep(out, kept(jobs, found, seeds))
    for power in sorted(TRACES.glob("summary_power_*.csv")):  # other GPUs of the artifact, where they are at hand
        if power.stem != "summary_power_v100":
            print(f"  {power.name}")
            elsewhere = table(read_jobs(power), 0.5, range(seeds))
            zeus, ours = ends(elsewhere, "Zeus"), ends(elsewhere, "wastenot")
            verdict.at_most(
                f"regret against Zeus', mean of the jobs' ratios, {power.name}", float(np.mean(ours / zeus)), 0.5
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["constants"]:
        constants(*map(int, sys.argv[2:3]))
        sys.exit()
    run_alone(main, *map(int, sys.argv[1:2]), tuple(map(float, sys.argv[2:])) or ETAS, KEPT)
