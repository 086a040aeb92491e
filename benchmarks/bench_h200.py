"""The measured H200 (data/h200): do two runs agree, and are the stated errors small enough?"""

from __future__ import annotations

import numpy as np

from benchmarks.verdict import Verdict
from presets import h200_data
from wastenot.study.sweep_file import read_sweep

LATEST = "gpt3-xl-4"


def main(verdict: Verdict) -> None:
    one, two = ({item.kernel.name: item for item in h200_data.read_measured(f"gpt3-xl-{run}", "gpt3-xl")} for run in (1, 2))
    for what in ("time", "energy"):
        difference = np.array([
            abs(two[name].time_s / one[name].time_s * (1 if what == "time" else two[name].power_w / one[name].power_w) - 1)
            for name in one
        ])  # fmt: skip
        verdict.at_most(f"two runs, {what}: median difference, %", 100 * float(np.median(difference)), 1.0)
        verdict.at_most(f"two runs, {what}: largest difference, %", 100 * float(difference.max()), 3.0)
    latest = read_sweep(h200_data.DATA / f"{LATEST}.csv")
    for what, error, value, goal in (
        ("time", latest.time_se_s, latest.time_s, 0.5),
        ("energy", latest.energy_se_j, latest.energy_j, 1.0),
    ):
        percent = 100 * error / value
        within = float(np.mean(percent <= goal))
        print(f"  stated standard errors in {what}: median {np.median(percent):.2f} %, within {goal} % for {within:.0%}")
        verdict.at_most(f"stated standard error in {what}, largest, %", float(percent.max()), goal)
