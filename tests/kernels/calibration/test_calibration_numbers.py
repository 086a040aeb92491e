"""Accuracy of calibrations to measured sweeps of real cards, on held-out points."""

from __future__ import annotations

import pytest

from wastenot.kernels.calibration.calibrate import held_out_kernels, held_out_points
from wastenot.kernels.calibration.points import points_of_sweep
from wastenot.study.sweep_file import read_sweep


@pytest.mark.parametrize(
    ("file", "limit_w", "points"),
    [
        ("rtx3080ti-polybench/sweep.csv", 350.0, 759),
        pytest.param("gpu-dvfs/gtx980.csv", None, 840, marks=pytest.mark.slow),
    ],
)
def test_eight_points_per_kernel_predict_the_others(shared_data, file, limit_w, points):
    """Median at most 3 %, mean at most 5 %, in time and in energy."""
    found = held_out_points(points_of_sweep(read_sweep(shared_data / file)), limit_w)
    assert found is not None and found.points == points
    for summary in (found.time, found.energy):
        assert summary.median <= 0.03 and summary.mean <= 0.05


@pytest.mark.slow
def test_held_out_kernels(shared_data):
    points = points_of_sweep(read_sweep(shared_data / "rtx3080ti-polybench" / "sweep.csv"))
    found = held_out_kernels(points, 350.0)
    assert found is not None
    for summary in (found.time, found.energy):
        assert summary.median <= 0.03 and summary.mean <= 0.05


@pytest.mark.slow
def test_v100_cross_validation(shared_data):
    """Five noisy points per kernel: time is good, energy misses the goal, as the docs say."""
    found = held_out_points(points_of_sweep(read_sweep(shared_data / "gpu-dvfs" / "v100.csv")))
    assert found is not None and found.points == 145
    assert found.time.median <= 0.015 and found.time.mean <= 0.02
    assert found.energy.median <= 0.035 and found.energy.mean <= 0.065
