"""What time jobs lose where GPUs share a budget of watts: a day of ten jobs on four simulated H200 and four A100.

    ours            wastenotd's budget: all jobs tell their frontiers as a sweep finds them, or every second one, or none
    equal           the same limit for every GPU
    by power        limits in proportion to what jobs draw without any, known at once
    known in full   the exact optimum of the composed frontiers as they truly are, known at once

Training, prefill and decode of three models; work is fixed, so that a slowed job ends later. Budget and goals were fixed
before the seeds were looked at; others shaped the method. Everything here is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.kept import DATA, keep
from benchmarks.verdict import Verdict, run_alone
from testbed.shared_watts import (
    Day,
    Job,
    Node,
    Policy,
    by_budget,
    by_power,
    equal_shares,
    known_in_full,
    run_day,
    task,
)
from wastenot.devices.clockd.budget import SENSOR_ERROR, Budget

KEPT = DATA / "budget.json"
GPUS = {f"{preset}-{place}": preset for preset in ("h200", "a100") for place in range(4)}
BUDGET_W = 2420.0
"""55 % of the 4,400 W that the GPUs may draw; they cannot be limited below 1,200 W."""
SEEDS = (11, 12, 13)
JOBS, DAY_S = 10, 86400.0
ARRIVES_H, LASTS_H = (0.0, 12.0), (3.0, 9.0)
KINDS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "train-8b": ("llama-8b", {"phase": "training", "batch": 2}),
    "train-xl": ("gpt3-xl", {"phase": "training", "batch": 8}),
    "prefill-8b": ("llama-8b", {"phase": "prefill"}),
    "decode-8b": ("llama-8b", {"phase": "decode"}),
    "decode-70b": ("llama-70b", {"phase": "decode", "batch": 8, "tensor_parallel": 8}),
}


def main(verdict: Verdict, seeds: Sequence[int] = SEEDS) -> None:
    found = {seed: days(seed) for seed in seeds}
    keep(KEPT, {seed: {name: summary(day) for name, day in each.items()} for seed, each in found.items()})
    for seed, each in found.items():
        print(f"  seed {seed}: time lost " + ", ".join(f"{name} {100.0 * day.lost:.1f} %" for name, day in each.items()))
    mean = {name: float(np.mean([each[name].lost for each in found.values()])) for name in found[seeds[0]]}
    ours = [day for each in found.values() for name, day in each.items() if name.startswith("ours")]
    verdict.at_most("power above the budget, relative", max(day.most_over_w for day in ours) / BUDGET_W, SENSOR_ERROR)
    verdict.at_most("limits above the budget, W", max(day.over_limits_w for day in ours), 1e-6)
    verdict.at_most("limits set an hour a GPU", max(day.changes for day in ours) / len(GPUS) / (DAY_S / 3600.0), 12.0)
    verdict.at_most("time lost, of that by equal shares", mean["ours"] / mean["equal"], 0.5)
    verdict.at_most("time lost, of that by power", mean["ours"] / mean["by power"], 1.0)
    verdict.at_most("time lost, of that with all known", mean["ours"] / mean["known in full"], 1.2)
    verdict.at_most("half of them told, of that by equal shares", mean["ours, half"] / mean["equal"], 1.0)
    verdict.at_most("none told, of that by equal shares", mean["ours, none"] / mean["equal"], 1.0)


def jobs_of(seed: int) -> list[Job]:
    """Ten jobs of a day."""
    rng = np.random.default_rng(seed)
    tasks = {name: task(model, **shape) for name, (model, shape) in KINDS.items()}
    jobs = []
    for place in range(JOBS):
        kind, preset = str(rng.choice([*KINDS])), str(rng.choice(["h200", "a100"]))
        names = [name for name, of in GPUS.items() if of == preset]
        gpus = tuple(sorted(rng.choice(names, int(rng.choice([1, 2, 4], p=[0.4, 0.4, 0.2])), replace=False).tolist()))
        arrives_s, work_s = 3600.0 * rng.uniform(*ARRIVES_H), 3600.0 * rng.uniform(*LASTS_H)
        jobs.append(Job(f"{place} {kind}", tasks[kind], gpus, arrives_s, work_s))
    return jobs


def days(seed: int) -> dict[str, Day]:
    """The same day under each policy."""
    jobs = jobs_of(seed)
    half = [replace(job, tells=place % 2 == 0) for place, job in enumerate(jobs)]
    none = [replace(job, tells=False) for job in jobs]
    ours: Callable[[Node, float], Policy] = lambda node, budget_w: by_budget(node, Budget(budget_w))  # noqa: E731
    plans = {
        "ours": (jobs, ours), "ours, half": (half, ours), "ours, none": (none, ours), "equal": (jobs, equal_shares),
        "by power": (jobs, by_power), "known in full": (jobs, known_in_full),
    }  # fmt: skip
    found = {}
    for name, (given, policy) in plans.items():
        node = Node(GPUS, seed)
        found[name] = run_day(node, given, policy(node, BUDGET_W), BUDGET_W, DAY_S)
    return found


def summary(day: Day) -> dict[str, object]:
    """What is kept of it."""
    return {
        "lost": round(day.lost, 5), "lost_gpu_h": round(day.lost_gpu_s / 3600.0, 3), "changes": day.changes,
        "most_over_w": round(day.most_over_w, 1), "by_job": {name: round(lost, 4) for name, lost in day.by_job.items()},
    }  # fmt: skip


if __name__ == "__main__":
    run_alone(main)
