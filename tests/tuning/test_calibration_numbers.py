"""How good calibration is on measured sweeps of real cards, on points that the fit never saw."""

from __future__ import annotations

import pytest

from wastenot.study.sweep_file import read_sweep
from wastenot.tuning.calibration.accuracy import held_out_kernels, held_out_points
from wastenot.tuning.calibration.points import points_of_sweep


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "limit_w", "points"),
    [("rtx3080ti-polybench/sweep.csv", 350.0, 759), ("gpu-dvfs/gtx980.csv", None, 840)],
)
def test_eight_points_a_kernel_tell_the_others(shared_data, file, limit_w, points):
    """Median at most 3 %, mean at most 5 %, in time and in energy."""
    found = held_out_points(points_of_sweep(read_sweep(shared_data / file)), limit_w)
    assert found is not None and found.points == points
    for spread in (found.time, found.energy):
        assert spread.median <= 0.03 and spread.mean <= 0.05


@pytest.mark.slow
def test_kernels_that_the_gpu_was_not_fitted_to(shared_data):
    points = points_of_sweep(read_sweep(shared_data / "rtx3080ti-polybench" / "sweep.csv"))
    found = held_out_kernels(points, 350.0)
    assert found is not None
    for spread in (found.time, found.energy):
        assert spread.median <= 0.03 and spread.mean <= 0.05


@pytest.mark.slow
def test_v100_leave_one_out(shared_data):
    """Five noisy points a kernel: time is good, energy misses what is asked; the docs say so."""
    found = held_out_points(points_of_sweep(read_sweep(shared_data / "gpu-dvfs" / "v100.csv")))
    assert found is not None and found.points == 145
    assert found.time.median <= 0.015 and found.time.mean <= 0.02
    assert found.energy.median <= 0.035 and found.energy.mean <= 0.065
