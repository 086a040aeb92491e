"""Forecasts from auto alone against the truth: how often the interval holds it, and how wide it is.

The truth is that of simulated GPUs, each forecast as if it could be any GPU and as if it were about as its preset says;
and the best of measured sweeps. Of these the RTX 3080 Ti's is no blind test: that auto may cost more than locked clocks
was learnt from it.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.verdict import Verdict
from tests.tuning.test_search import truth
from wastenot.devices.open import open_device
from wastenot.devices.simulated.preset import find_preset
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner
from wastenot.study.store import Study, open_study
from wastenot.study.sweep import Sweep
from wastenot.study.sweep_file import read_sweep
from wastenot.sweeping.point import PointOptions
from wastenot.sweeping.sweep import measure_sweep
from wastenot.tasks import find_tasks
from wastenot.tuning.forecast.forecast import forecast
from wastenot.tuning.forecast.kernels import choices
from wastenot.tuning.forecast.prior import KNOWLEDGES, Knowledge

DATA = Path(__file__).parents[1].parent / "shared" / "data"
PRESETS = ("rtx-3080-ti", "rtx-a4000", "h200", "v100")
WORKLOADS = ("gpt3-xl", "llama-8b")
SEEDS = (1, 2)
BOUNDS = (0.0, 0.05)
ROUNDING = 1e-4
"""Of the energy: a truth of nothing saved is held by an interval that ends this near to it."""
ASKED, FASTEST_S = 0.9, 10.0
MEASURED = {
    "rtx3080ti-polybench/sweep-share.csv": "rtx-3080-ti",
    "rtx3080ti-polybench/sweep.csv": "rtx-3080-ti",
    "gpu-dvfs/v100.csv": "v100",
}


def auto_study(preset: str, workload: str, seed: int, path: Path) -> Study:
    """A study of a simulated GPU at its own clocks."""
    device, units = open_device(f"sim:{preset}", seed=seed), find_tasks(workload, f"sim:{preset}")
    study = open_study(path, create=True)
    measure_sweep(device, units, study, (), options=PointOptions(2.0, 2.0))
    return study


def true_changes(preset: str, workload: str, bounds: tuple[float, ...], *, core_only: bool = False) -> tuple[float, ...]:
    """Energy changes of the best plans on a simulated GPU's truth, over the clocks that a forecast chooses from."""
    device, units = open_device(f"sim:{preset}"), find_tasks(workload, f"sim:{preset}")
    offered = choices(find_preset(preset), core_only=core_only).settings
    return _best(truth(device, units, offered), bounds)


def _best(sweep: Sweep, bounds: tuple[float, ...]) -> tuple[float, ...]:
    planner = Planner(sweep)
    return tuple(planner.plan(Objective("waste", bound)).predicted.energy_change for bound in bounds)


def auto_rows(sweep: Sweep, device: str) -> Sweep:
    """A sweep without all that auto does not tell."""
    auto = np.isnan(sweep.core_mhz) & np.isnan(sweep.memory_mhz) & np.isnan(sweep.power_limit_w)
    columns = {name: value[auto] for name, value in vars(sweep).items() if isinstance(value, np.ndarray)}
    return replace(sweep, **columns, device=device)


def holds(interval: tuple[float, float], change: float) -> bool:
    """Whether a true energy change is within an interval."""
    return interval[0] - ROUNDING <= change <= interval[1] + ROUNDING


def main(verdict: Verdict) -> None:
    held: dict[tuple[Knowledge, str], list[bool]] = defaultdict(list)
    widths: dict[tuple[Knowledge, str, float], list[float]] = defaultdict(list)
    slowest_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for preset in PRESETS:
            for workload in WORKLOADS:
                changes = true_changes(preset, workload, BOUNDS)
                for seed in SEEDS:
                    study = auto_study(preset, workload, seed, Path(folder) / f"{preset}-{workload}-{seed}.db")
                    for knowledge in KNOWLEDGES:
                        for bound, change in zip(BOUNDS, changes, strict=True):
                            began = time.perf_counter()
                            found = forecast(study, max_slowdown=bound, knowledge=knowledge, seed=seed)
                            slowest_s = max(slowest_s, time.perf_counter() - began)
                            spread = found.energy_change
                            held[knowledge, "95 %"].append(holds(spread.central_95, change))
                            held[knowledge, "80 %"].append(holds(spread.central_80, change))
                            widths[knowledge, preset, bound].append(spread.central_95[1] - spread.central_95[0])
        _measured(verdict, Path(folder))
    for (knowledge, preset, bound), found_widths in widths.items():
        wide = 100 * np.mean(found_widths)
        print(f"  {preset} like {knowledge}, slowdown {bound:g}: 95 % interval {wide:.1f} points wide")
    for (knowledge, level), hits in held.items():
        what = f"simulated GPUs like {knowledge}: truth within the {level} interval"
        if level == "95 %":
            verdict.at_least(f"{what}, of {len(hits)}", float(np.mean(hits)), ASKED)
        else:
            print(f"  {what}: {np.mean(hits):.0%}")
    verdict.at_most("slowest forecast of 200 draws, s", slowest_s, FASTEST_S)


def _measured(verdict: Verdict, folder: Path) -> None:
    """Sweeps of real cards, whose auto (or highest) clocks alone are shown to the forecast."""
    if not DATA.is_dir():
        print(f"  left out: no measured sweeps at {DATA}")
        return
    for place, (file, preset) in enumerate(MEASURED.items()):
        sweep = read_sweep(DATA / file)
        study = open_study(folder / f"measured-{place}.db", create=True)
        study.add(auto_rows(sweep, find_preset(preset).model), source=file)
        bounds = (0.0, 0.02)
        for bound, change in zip(bounds, _best(sweep, bounds), strict=True):
            spread = forecast(study, max_slowdown=bound).energy_change
            print(
                f"  {file}, slowdown {bound:g}: best of the sweep {change:+.2%}, forecast {spread.median:+.2%}, "
                f"95 % {spread.central_95[0]:+.2%} to {spread.central_95[1]:+.2%}"
            )
            verdict.at_least(f"{file}, slowdown {bound:g}: within the interval", holds(spread.central_95, change), 1.0)
