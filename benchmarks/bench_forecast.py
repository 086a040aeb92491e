"""Forecasts from the default clocks compared with the truth: how often the interval contains it, and how wide it is.

The truth is the best plan of sweeps of real GPUs, of which the forecast sees only the default (or highest) clocks, and that
of simulated GPUs, each forecast once as any GPU and once as a GPU about like its preset. Only sweeps that did not shape the
prior judge it. Their cases are fewer than they seem: slowdowns of a sweep, sweeps of a card and groups of a sweep's kernels
hold or miss together, so that the binomial bounds printed beside the shares are too narrow.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.verdict import Verdict
from testbed.binomial import share_bounds
from testbed.known_truth import best_changes, contains, default_clock_rows, default_clock_study, true_changes
from testbed.measured_sweeps import DATA, MEASURED_SWEEPS, MeasuredSweep, some_kernels
from wastenot.devices.simulated.preset import Preset
from wastenot.kernels.forecast.forecast import forecast
from wastenot.kernels.forecast.prior import KNOWLEDGES, Knowledge
from wastenot.kernels.forecast.result import Quantiles
from wastenot.study.store import Study, open_study
from wastenot.study.sweep import Sweep

PRESETS = ("rtx-3080-ti", "rtx-a4000", "h200", "v100")
WORKLOADS = ("gpt3-xl", "llama-8b")
SEEDS = (1, 2)
BOUNDS = (0.0, 0.05)
MEASURED_BOUNDS = (0.0, 0.02, 0.05, 0.10)
GROUPS_OF = (3, 8)  # kernels
GOAL_95, GOAL_80, FASTEST_S = 26 / 28, 21 / 28, 10.0


@dataclass(frozen=True, slots=True)
class Case:
    """A forecast beside the truth."""

    bound: float
    truth: float
    forecast: Quantiles

    @property
    def in_95(self) -> bool:
        """Whether the 95 % interval contains the truth."""
        return contains(self.forecast.central_95, self.truth)

    @property
    def in_80(self) -> bool:
        """Whether the 80 % interval contains the truth."""
        return contains(self.forecast.central_80, self.truth)


def main(verdict: Verdict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _measured(verdict, Path(folder))
        _simulated(verdict, Path(folder))


def _measured(verdict: Verdict, folder: Path) -> None:
    """Sweeps of real GPUs, whole and in random groups of their kernels, by role."""
    cases: dict[str, list[Case]] = defaultdict(list)
    for sweep in MEASURED_SWEEPS:
        if not (DATA / sweep.file).is_file():
            print(f"  skipped: {sweep.name}: no {DATA / sweep.file}")
            continue
        whole = list(_cases(sweep.read(DATA), sweep.preset(), MEASURED_BOUNDS, folder))
        cases[sweep.role] += whole
        for case in whole:
            found = case.forecast
            print(
                f"  {sweep.role}: {sweep.name}, slowdown {case.bound:.0%}: best of the sweep {case.truth:+.2%}, "
                f"forecast {found.median:+.2%}, 80 % {found.central_80[0]:+.2%} to {found.central_80[1]:+.2%}, "
                f"95 % {found.central_95[0]:+.2%} to {found.central_95[1]:+.2%}"
                f"{'' if case.in_80 else ': outside ' + ('80 %' if case.in_95 else '95 %')}"
            )
        for part in _groups(sweep):
            cases[f"groups of kernels, {sweep.role}"] += _cases(part, sweep.preset(), BOUNDS, folder)
    for kind, those in cases.items():
        print(f"  {kind}: 95 % intervals hold {_share([case.in_95 for case in those])}")
        print(f"  {kind}: 80 % intervals hold {_share([case.in_80 for case in those])}")
        for bound in BOUNDS:
            print(f"  {kind}, slowdown {bound:.0%}: {_widths([case.forecast for case in those if case.bound == bound])}")
    judging = cases["judging"]
    if judging:
        verdict.at_least(
            "judging sweeps: truth within the 95 % interval", np.mean([case.in_95 for case in judging]), GOAL_95
        )
        verdict.at_least(
            "judging sweeps: truth within the 80 % interval", np.mean([case.in_80 for case in judging]), GOAL_80
        )


def _groups(sweep: MeasuredSweep) -> Iterator[Sweep]:
    """Two random groups of each size."""
    whole, rng = sweep.read(DATA), np.random.default_rng(5)
    for size in GROUPS_OF:
        for _ in range(2):
            if size < len(whole.kernels):
                yield some_kernels(whole, np.sort(rng.choice(len(whole.kernels), size, replace=False)))


def _cases(sweep: Sweep, gpu: Preset, bounds: tuple[float, ...], folder: Path) -> Iterator[Case]:
    study = _seen(sweep, gpu, folder)
    for bound, change in zip(bounds, best_changes(sweep, bounds), strict=True):
        yield Case(bound, change, forecast(study, gpu=gpu, max_slowdown=bound, core_only=False).energy_change)


def _seen(sweep: Sweep, gpu: Preset, folder: Path) -> Study:
    """A study of the sweep's rows at the default clocks."""
    study = open_study(folder / f"{len(list(folder.iterdir()))}.db", create=True)
    study.add(default_clock_rows(sweep, gpu.model), source="measured")
    return study


def _simulated(verdict: Verdict, folder: Path) -> None:
    held: dict[tuple[Knowledge, str], list[bool]] = defaultdict(list)
    found: dict[tuple[Knowledge, str, float], list[Quantiles]] = defaultdict(list)
    slowest_s = 0.0
    for preset in PRESETS:
        for workload in WORKLOADS:
            changes = true_changes(preset, workload, BOUNDS)
            for seed in SEEDS:
                study = default_clock_study(preset, workload, seed, folder / f"{preset}-{workload}-{seed}.db")
                for knowledge in KNOWLEDGES:
                    for bound, change in zip(BOUNDS, changes, strict=True):
                        began = time.perf_counter()
                        result = forecast(study, max_slowdown=bound, knowledge=knowledge, core_only=False, seed=seed)
                        slowest_s = max(slowest_s, time.perf_counter() - began)
                        quantiles = result.energy_change
                        held[knowledge, "95 %"].append(contains(quantiles.central_95, change))
                        held[knowledge, "80 %"].append(contains(quantiles.central_80, change))
                        found[knowledge, preset, bound].append(quantiles)
    for (knowledge, preset, bound), intervals in found.items():
        print(f"  {preset} like {knowledge}, slowdown {bound:g}: {_widths(intervals)}")
    for (knowledge, level), hits in held.items():
        print(f"  simulated GPUs like {knowledge}: {level} intervals hold {_share(hits)}")
        goal = GOAL_95 if level == "95 %" else GOAL_80
        verdict.at_least(f"simulated GPUs like {knowledge}: truth within the {level} interval", float(np.mean(hits)), goal)
    verdict.at_most("slowest forecast of 200 draws, s", slowest_s, FASTEST_S)


def _share(hits: list[bool]) -> str:
    """Hits of cases, with the 95 % binomial bounds (Clopper and Pearson) of their share."""
    count, of = sum(hits), len(hits)
    low, high = share_bounds(count, of)
    return f"{count} of {of}, {count / of:.0%} ({low:.0%} to {high:.0%} if all were independent)"


def _widths(intervals: list[Quantiles]) -> str:
    width_95, width_80 = (
        100 * np.mean([high - low for low, high in ends])
        for ends in ([each.central_95 for each in intervals], [each.central_80 for each in intervals])
    )
    return f"95 % intervals {width_95:.1f} points wide on average, 80 % intervals {width_80:.1f}"
