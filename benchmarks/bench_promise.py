"""What a default plan promises after a sweep compared with its validation: the whole workflow on simulated GPUs.

Every seed draws another card, about like a preset, sweeps a third of the kernels of a workload on it, plans, and validates
the plans on the card as the sweep left it. Numbers are compared with the least (or most) that a binomial distribution of the
promised 95 % leaves one in a thousand; there are as many seeds as tell 80 % from 95 %.
"""

from __future__ import annotations

import math
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.stats import t

from benchmarks.bench_coverage import PRESETS, drawn_card
from benchmarks.verdict import Verdict
from testbed.binomial import ENOUGH, UNLIKELY, least_hits, most_misses
from wastenot.devices.open import open_device
from wastenot.planning.objective import Objective
from wastenot.planning.plan import Plan
from wastenot.planning.planner import Planner
from wastenot.study.store import open_study
from wastenot.sweeping.grid import Grid
from wastenot.sweeping.sweep import measure_sweep
from wastenot.tasks import WorkloadTasks, find_tasks
from wastenot.tuning.validate import validate

SLOWDOWNS = (0.0, 0.02)
WORKLOAD, EVERY = "gpt3-xl", 3  # kernels
FIRST_SEED = 500  # cards that nothing else draws
REPEATS = 4


def promised_and_found(number: int) -> tuple[Plan, ...]:
    """Default plans of a drawn card, validated."""
    preset, seed = PRESETS[number % len(PRESETS)], FIRST_SEED + number
    with tempfile.TemporaryDirectory() as folder:
        name = drawn_card(preset, seed, Path(folder))
        whole = find_tasks(WORKLOAD, name)
        tasks = WorkloadTasks("some", whole.kernels[::EVERY], whole.tasks[::EVERY])
        device = open_device(name, seed=seed)
        study = open_study(Path(folder) / "study.db", create=True)
        measure_sweep(device, tasks, study, Grid(210.0).settings(device.clocks.supported_clocks()))
        planner = Planner(study.read(tasks.name))
        plans = [planner.plan(Objective("waste", slowdown)) for slowdown in SLOWDOWNS]
        return tuple(validate(device, plan, tasks, repeats=REPEATS) for plan in plans)


def difference(plan: Plan, what: str) -> tuple[float, bool]:
    """Promised less validated change, and whether it is within both intervals."""
    expected, found = plan.expected, plan.validation
    assert expected is not None and found is not None and plan.objective.basis == "corrected"
    promise, interval = getattr(expected, f"{what}_change"), getattr(expected, f"{what}_change_interval")
    measured = getattr(found, f"{what}_change")
    error = math.hypot(interval[1] - interval[0], measured.interval[1] - measured.interval[0]) / 2
    return promise - measured.mean, abs(promise - measured.mean) <= error


def judged(verdict: Verdict, found: list[tuple[Plan, ...]]) -> None:
    """Print how far promises are from validations by preset; judge those of every slowdown."""
    seeds = len(found)
    for slowdown, plans in zip(SLOWDOWNS, zip(*found, strict=True), strict=True):
        for what in ("time", "energy"):
            away, within = zip(*(difference(plan, what) for plan in plans), strict=True)
            distances = []
            for number, preset in enumerate(PRESETS):
                of_preset = slice(number, None, len(PRESETS))
                error = np.std(away[of_preset], ddof=1) / math.sqrt(len(away[of_preset]))
                distances.append(abs(float(np.mean(away[of_preset]) / error)))
                print(
                    f"    {slowdown:.0%}, {preset}: {what} promised minus validated {np.mean(away[of_preset]):+.3%} on "
                    f"average, within both intervals {sum(within[of_preset])} of {len(within[of_preset])}"
                )
            verdict.at_most(
                f"{slowdown:.0%}: {what} promised minus validated, mean, %", 100 * abs(float(np.mean(away))), 0.15
            )
            verdict.at_most(
                f"{slowdown:.0%}: {what} promised minus validated, mean of the worst preset, in standard errors",
                max(distances), float(t.isf(UNLIKELY / (2 * len(PRESETS)), seeds // len(PRESETS) - 1)),
            )  # fmt: skip
            verdict.at_least(
                f"{slowdown:.0%}: {what} validated within the intervals, of {seeds}", sum(within), least_hits(seeds)
            )
        verdicts = [plan.headline.verdict for plan in plans]
        counts = ", ".join(f"{name} {verdicts.count(name)}" for name in ("kept", "undecided", "missed"))
        print(f"    {slowdown:.0%}: {counts} of {seeds}")
        verdict.at_most(f"{slowdown:.0%}: slowdown missed, of {seeds}", verdicts.count("missed"), most_misses(seeds))


def main(verdict: Verdict) -> None:
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(promised_and_found, range(ENOUGH)))
    judged(verdict, found)
