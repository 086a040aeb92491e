"""Held-out errors of calibrated GPUs, and how long a fit takes."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.verdict import Verdict
from wastenot.study.sweep_file import read_sweep
from wastenot.tuning.calibration.calibrate import calibrate_sweep

DATA = Path(__file__).parents[1].parent / "shared" / "data"
SWEEPS = {
    "RTX 3080 Ti": ("rtx3080ti-polybench/sweep.csv", 350.0),
    "GTX 980": ("gpu-dvfs/gtx980.csv", None),
    "V100": ("gpu-dvfs/v100.csv", None),
}
GOAL_MEDIAN, GOAL_MEAN = 0.03, 0.05


def main(verdict: Verdict) -> None:
    if not DATA.is_dir():
        print(f"  skipped: no measured sweeps in {DATA}")
        return
    for name, (file, limit_w) in SWEEPS.items():
        began = time.perf_counter()
        report = calibrate_sweep(read_sweep(DATA / file), name="benchmark", power_limit_w=limit_w).report
        print(f"  {name}: fitted and held out in {time.perf_counter() - began:.1f} s")
        for errors in report.errors[1:]:
            for quantity in ("time", "energy"):
                summary = getattr(errors, quantity)
                verdict.at_most(f"{name}, {errors.what}: {quantity}, median", summary.median, GOAL_MEDIAN)
                verdict.at_most(f"{name}, {errors.what}: {quantity}, mean", summary.mean, GOAL_MEAN)
