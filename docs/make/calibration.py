"""A simulated GPU beside a sweep of a real one that others measured, which is not part of the project."""

from __future__ import annotations

import numpy as np

from benchmarks.kept import BESIDE
from docs.make.page import Page, percent, table
from wastenot.kernels.calibration.calibrate import fits_without_some, ratios
from wastenot.kernels.calibration.points import Points, points_of_sweep
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner
from wastenot.study.sweep_file import read_sweep

SWEEP, LIMIT_W = "rtx3080ti-polybench/sweep-share.csv", 350.0
LOW_MHZ = 810.0


def low_memory_errors() -> str:
    """What the model is worth at low memory clocks, and where an optimal plan of the RTX 3080 Ti chooses them."""
    sweep = read_sweep(BESIDE / SWEEP)
    points = points_of_sweep(sweep)
    ((fit, left_out),) = fits_without_some(points, LIMIT_W)
    error = dict(zip(("time", "energy"), ratios(fit.device, fit.kernels, points, left_out) - 1.0, strict=True))
    low = points.memory_mhz[left_out > 0] <= LOW_MHZ
    best = Planner(sweep).plan(Objective("waste", 0.02))
    picked = np.array(
        [
            (core, memory) == (best.assignments[kernel].core_mhz, best.assignments[kernel].memory_mhz)
            for kernel, core, memory in left_out_of(points, left_out)
        ]
    )
    rows = []
    for name, mask in (
        ("held-out points above 810 MHz", ~low),
        ("held-out points at 810 MHz or less", low),
        ("of these, chosen by the optimal plan at 2 % (equal shares)", low & picked),
    ):
        sizes = [percent(of(np.abs(error[what][mask]))) for what in error for of in (np.median, np.mean, _p90)]
        rows.append([name, str(int(mask.sum())), ", ".join(sizes[:3]), ", ".join(sizes[3:])])
    return table("points | number | time: median, mean, 90th percentile | energy: median, mean, 90th percentile", rows)


def left_out_of(points: Points, left_out: np.ndarray) -> list[tuple[int, float, float]]:
    """Kernel and clocks of the points of a mask, in its order."""
    kernels = np.broadcast_to(np.arange(len(left_out))[:, None], left_out.shape)[left_out > 0]
    core, memory = points.core_mhz[left_out > 0], points.memory_mhz[left_out > 0]
    return list(zip(kernels.tolist(), core.tolist(), memory.tolist(), strict=True))


def _p90(sizes: np.ndarray) -> float:
    return float(np.quantile(sizes, 0.9))


PAGES = (Page("calibration", {"low-memory-errors": low_memory_errors}),)
