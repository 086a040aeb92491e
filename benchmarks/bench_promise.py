"""What a plan promises after a sweep compared with its validation: the whole workflow on a simulated GPU, over seeds."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from statistics import NormalDist

import numpy as np

from benchmarks.verdict import Verdict
from wastenot.devices.open import open_device
from wastenot.planning.objective import Objective
from wastenot.planning.plan import Plan
from wastenot.planning.planner import Planner
from wastenot.study.store import open_study
from wastenot.sweeping.grid import Grid
from wastenot.sweeping.sweep import measure_sweep
from wastenot.tasks import find_tasks
from wastenot.tuning.validate import validate
from wastenot.workloads.shape import Shape

DEVICE = "sim:rtx-3080-ti"
SEEDS = 8
REPEATS = 4
_LEVEL = NormalDist().inv_cdf(0.975)


def promised_and_found(seed: int, folder: Path) -> tuple[Plan, ...]:
    """A strict plan and one with confidence, both validated."""
    units = find_tasks("gpt3-xl", DEVICE, Shape())
    device = open_device(DEVICE, seed=seed)
    study = open_study(folder / f"{seed}.db", create=True)
    measure_sweep(device, units, study, Grid(210.0).settings(device.clocks.supported_clocks()))
    planner = Planner(study.read(units.name))
    goals = (Objective("waste", 0.0), Objective("waste", 0.0, confidence=0.95))
    return tuple(validate(device, planner.plan(goal), units, repeats=REPEATS) for goal in goals)


def main(verdict: Verdict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plans = [promised_and_found(seed, Path(folder)) for seed in range(SEEDS)]
    for what in ("time", "energy"):
        differences, covered = [], []
        for plan, _ in plans:
            expected, found = plan.expected, plan.validation
            assert expected is not None and found is not None
            promise, interval = getattr(expected, f"{what}_change"), getattr(expected, f"{what}_change_interval")
            measured = getattr(found, f"{what}_change")
            error = math.hypot(interval[1] - interval[0], measured.interval[1] - measured.interval[0]) / 2
            differences.append(promise - measured.mean)
            covered.append(abs(differences[-1]) <= error)
        print(
            f"  {what}: promised minus validated {np.mean(differences):+.3%} on average, "
            f"within both intervals {np.mean(covered):.0%}"
        )
        verdict.at_most(f"{what} promised minus validated, mean over seeds, %", 100 * abs(float(np.mean(differences))), 0.15)
        verdict.at_least(f"{what}: validated within the intervals", float(np.mean(covered)), 0.75)
    slower = [plan.validation.time_change.interval[0] for _, plan in plans if plan.validation is not None]
    verdict.at_most("plans with confidence 0.95 significantly slower than auto", sum(low > 0 for low in slower), 1)
