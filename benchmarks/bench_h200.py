"""The measured H200 (data/h200): do two runs agree, and does a preset fitted to half of the kernels predict the rest?"""

from __future__ import annotations

import numpy as np

from benchmarks.verdict import Verdict
from presets import h200
from wastenot.devices.simulated.preset import find_preset
from wastenot.study.sweep_file import read_sweep

LATEST = "gpt3-xl-4"
HALVES = (("GPT-3 XL and Llama 8B training", 2), ("GPT-3 XL alone", 1), ("and Llama 8B prefill and decode", 4))


def main(verdict: Verdict) -> None:
    one, two = ({item.kernel.name: item for item in h200.read_measured(f"gpt3-xl-{run}", "gpt3-xl")} for run in (1, 2))
    for what in ("time", "energy"):
        difference = np.array([
            abs(two[name].time_s / one[name].time_s * (1 if what == "time" else two[name].power_w / one[name].power_w) - 1)
            for name in one
        ])  # fmt: skip
        verdict.at_most(f"two runs, {what}: median difference, %", 100 * float(np.median(difference)), 1.0)
        verdict.at_most(f"two runs, {what}: largest difference, %", 100 * float(difference.max()), 3.0)
    latest = read_sweep(h200.DATA / f"{LATEST}.csv")
    for what, error, value, goal in (
        ("time", latest.time_se_s, latest.time_s, 0.5),
        ("energy", latest.energy_se_j, latest.energy_j, 1.0),
    ):
        percent = 100 * error / value
        within = float(np.mean(percent <= goal))
        print(f"  stated standard errors in {what}: median {np.median(percent):.2f} %, within {goal} % for {within:.0%}")
        verdict.at_most(f"stated standard error in {what}, largest, %", float(percent.max()), goal)
    for name, sweeps in HALVES:
        operations = [kernel for sweep in h200.SWEEPS[:sweeps] for kernel in h200.read_measured(*sweep)]
        errors = h200.errors_of_held_out(find_preset("h200"), operations)
        for error in errors:
            if max(abs(error.time), abs(error.power)) > 0.2:
                print(f"    {error.measured.kernel.name:26} time {error.time:+7.1%}  power {error.power:+7.1%}")
        for what, goal in (("time", 8.0), ("power", 6.0)):
            each = 100 * np.abs([getattr(error, what) for error in errors])
            print(f"  held-out half of {len(each)} kernels, {name}, {what}: median error {np.median(each):.1f} %")
            verdict.at_most(f"held-out half, {name}: mean error in {what}, %", float(each.mean()), goal)
