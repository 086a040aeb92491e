"""Forecasts from the default clocks compared with the truth: how often the interval contains it, and how wide it is.

The truth is that of simulated GPUs, each forecast once as any GPU and once as a GPU about like its preset, and the best
plans of measured sweeps. The RTX 3080 Ti's sweep is no blind test: it taught us that default clocks may cost more than
locked ones.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.verdict import Verdict
from tests.support.known_truth import best_changes, contains, default_clock_rows, default_clock_study, true_changes
from wastenot.devices.simulated.preset import find_preset
from wastenot.study.store import open_study
from wastenot.study.sweep_file import read_sweep
from wastenot.tuning.forecast.forecast import forecast
from wastenot.tuning.forecast.prior import KNOWLEDGES, Knowledge

DATA = Path(__file__).parents[1].parent / "shared" / "data"
PRESETS = ("rtx-3080-ti", "rtx-a4000", "h200", "v100")
WORKLOADS = ("gpt3-xl", "llama-8b")
SEEDS = (1, 2)
BOUNDS = (0.0, 0.05)
GOAL, FASTEST_S = 0.9, 10.0
MEASURED = {
    "rtx3080ti-polybench/sweep-share.csv": "rtx-3080-ti",
    "rtx3080ti-polybench/sweep.csv": "rtx-3080-ti",
    "gpu-dvfs/v100.csv": "v100",
}


def main(verdict: Verdict) -> None:
    held: dict[tuple[Knowledge, str], list[bool]] = defaultdict(list)
    widths: dict[tuple[Knowledge, str, float], list[float]] = defaultdict(list)
    slowest_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for preset in PRESETS:
            for workload in WORKLOADS:
                changes = true_changes(preset, workload, BOUNDS)
                for seed in SEEDS:
                    study = default_clock_study(preset, workload, seed, Path(folder) / f"{preset}-{workload}-{seed}.db")
                    for knowledge in KNOWLEDGES:
                        for bound, change in zip(BOUNDS, changes, strict=True):
                            began = time.perf_counter()
                            result = forecast(study, max_slowdown=bound, knowledge=knowledge, seed=seed)
                            slowest_s = max(slowest_s, time.perf_counter() - began)
                            quantiles = result.energy_change
                            held[knowledge, "95 %"].append(contains(quantiles.central_95, change))
                            held[knowledge, "80 %"].append(contains(quantiles.central_80, change))
                            widths[knowledge, preset, bound].append(quantiles.central_95[1] - quantiles.central_95[0])
        _measured(verdict, Path(folder))
    for (knowledge, preset, bound), all_widths in widths.items():
        wide = 100 * np.mean(all_widths)
        print(f"  {preset} like {knowledge}, slowdown {bound:g}: 95 % interval {wide:.1f} points wide")
    for (knowledge, level), hits in held.items():
        what = f"simulated GPUs like {knowledge}: truth within the {level} interval"
        if level == "95 %":
            verdict.at_least(f"{what}, of {len(hits)}", float(np.mean(hits)), GOAL)
        else:
            print(f"  {what}: {np.mean(hits):.0%}")
    verdict.at_most("slowest forecast of 200 draws, s", slowest_s, FASTEST_S)


def _measured(verdict: Verdict, folder: Path) -> None:
    """Sweeps of real cards, of which the forecast sees only the default (or highest) clocks."""
    if not DATA.is_dir():
        print(f"  skipped: no measured sweeps in {DATA}")
        return
    for index, (file, preset) in enumerate(MEASURED.items()):
        sweep = read_sweep(DATA / file)
        study = open_study(folder / f"measured-{index}.db", create=True)
        study.add(default_clock_rows(sweep, find_preset(preset).model), source=file)
        bounds = (0.0, 0.02)
        for bound, change in zip(bounds, best_changes(sweep, bounds), strict=True):
            quantiles = forecast(study, max_slowdown=bound).energy_change
            print(
                f"  {file}, slowdown {bound:g}: best of the sweep {change:+.2%}, forecast {quantiles.median:+.2%}, "
                f"95 % {quantiles.central_95[0]:+.2%} to {quantiles.central_95[1]:+.2%}"
            )
            verdict.at_least(f"{file}, slowdown {bound:g}: within the interval", contains(quantiles.central_95, change), 1.0)
