"""How much of the best saving a search with few measurements finds, judged by the true numbers.

What shaped the search: half of the RTX 3080 Ti's kernels under other counts, and simulated RTX A4000, RTX 3080 Ti and H200.
The GTX 980's and the V100's tables, the simulated V100 and MI300X, and the subsets below were looked at only afterwards.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.kept import BESIDE
from benchmarks.verdict import Verdict
from testbed.known_truth import best_changes, saving_of_measured, true_sweep
from testbed.searches import Found, search_table, subset, with_equal_times, with_kernels
from wastenot.devices.open import open_device
from wastenot.kernels.run.search import search_sweep
from wastenot.meters.tasks import find_tasks
from wastenot.study.store import open_study
from wastenot.study.sweep import Sweep
from wastenot.study.sweep_file import read_sweep
from wastenot.sweeping.grid import Grid

DATA = BESIDE / "rtx3080ti-polybench"
GOALS = ((0.3, 0.95), (0.4, 0.98))
ORDERS, SUBSETS = 16, 16
SLOWDOWNS = (0.0, 0.01, 0.02, 0.05)


def main(verdict: Verdict) -> None:
    if (DATA / "sweep-share.csv").exists():
        card = read_sweep(DATA / "sweep-share.csv")
        for share, goal in GOALS:
            found = _searches([_shuffled(card, seed) for seed in range(ORDERS)], share)
            _judge(verdict, f"RTX 3080 Ti, {ORDERS} orders of its kernels", share, found, goal)
            verdict.at_most("  different sets of points among them", len({one.points for one in found}), 1)
            found = _searches([subset(card, 35, 100 + seed) for seed in range(SUBSETS)], share)
            _judge(verdict, f"RTX 3080 Ti, {SUBSETS} subsets of 35 of its kernels", share, found, goal)
        found = _searches([subset(card, 35, 100 + seed) for seed in range(SUBSETS)], 0.3, SLOWDOWNS)
        _judge(verdict, f"RTX 3080 Ti, the same at slowdowns of {_listed(SLOWDOWNS)}", 0.3, found, 0.95)
    others = DATA.parent / "gpu-dvfs"
    if (others / "gtx980.csv").exists():
        gtx = with_equal_times(read_sweep(others / "gtx980.csv"))
        for share, goal in GOALS:
            found = _searches([subset(gtx, 24, 200 + seed) for seed in range(SUBSETS)], share, SLOWDOWNS)
            _judge(
                verdict,
                f"GTX 980, {SUBSETS} subsets of 24 of its kernels, slowdowns of {_listed(SLOWDOWNS)}",
                share,
                found,
                goal,
            )
    # With 10 clocks (a step of 60 MHz) 30 % would be 2.3 points of each kernel, too few.
    for preset, share, step_mhz, seeds in (
        ("v100", 0.3, 30.0, 4),
        ("v100", 0.5, 60.0, 4),
        ("mi300x", 0.3, None, 4),
        ("rtx-a4000", 0.3, 150.0, 2),
    ):
        # Not 0: where the default clocks are the fastest a strict plan saves nothing, and there is no fraction of it.
        slowdowns = [SLOWDOWNS[1 + seed % 3] for seed in range(seeds)]
        fractions = [_simulated(preset, share, step_mhz, seed, slowdown) for seed, slowdown in enumerate(slowdowns)]
        grid = f"every {step_mhz:g} MHz" if step_mhz else "every clock"
        what = f"sim:{preset}, {grid}, {seeds} seeds of noise, slowdowns of {_listed(sorted(set(slowdowns)))}"
        _note(verdict, what, share, fractions, 0.95)
    _note(verdict, "sim:h200, full grid", 0.1, [_simulated("h200", 0.1, None, 1, 0.0)], 0.99)


def _shuffled(table: Sweep, seed: int) -> Sweep:
    return with_kernels(table, np.random.default_rng(seed).permutation(len(table.kernels)).tolist())


def _searches(tables: Sequence[Sweep], share: float, slowdowns: Sequence[float] = (0.0,)) -> list[Found]:
    with tempfile.TemporaryDirectory() as folder:
        return [
            search_table(table, Path(folder) / f"{index}.db", share, slowdowns[index % len(slowdowns)])
            for index, table in enumerate(tables)
        ]


def _simulated(preset: str, share: float, step_mhz: float | None, seed: int, max_slowdown: float) -> float:
    """Fraction of the best saving by the truth, from noisy measurements."""
    name = f"sim:{preset}"
    device, units = open_device(name, seed=seed), find_tasks("gpt3-xl", name)
    settings = Grid(core_step_mhz=step_mhz).settings(device.clocks.supported_clocks())
    whole = true_sweep(device, units, settings)
    with tempfile.TemporaryDirectory() as folder:
        study = open_study(Path(folder) / "few.db", create=True)
        search_sweep(device, units, study, settings, share=share, max_slowdown=max_slowdown)
        return saving_of_measured(whole, study.read(), max_slowdown) / -best_changes(whole, (max_slowdown,))[0]


def _judge(verdict: Verdict, what: str, share: float, found: Sequence[Found], goal: float) -> None:
    _note(verdict, what, share, [one.fraction for one in found], goal)


def _note(verdict: Verdict, what: str, share: float, fractions: Sequence[float], goal: float) -> None:
    mean = f", mean {np.mean(fractions):.4f}" if len(fractions) > 1 else ""
    verdict.at_least(f"{what}: fraction of the best saving at {share:.0%} of the points, worst{mean}", min(fractions), goal)


def _listed(slowdowns: Sequence[float]) -> str:
    return ", ".join(f"{slowdown:.0%}" for slowdown in slowdowns)
