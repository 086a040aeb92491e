"""Clocks as kernels feel them, from their times."""

import numpy as np
import pytest

from wastenot.planning.planner import Planner
from wastenot.study.sweep import Kernel, Sweep

FLOOR_MHZ = 500.0
CORES_MHZ, MEMORIES_MHZ = np.arange(200.0, 2001.0, 200.0), (400.0, 800.0, 5000.0)
BANDWIDTH = {400.0: 0.06, 800.0: 0.15, 5000.0: 1.0}  # of which 400 MHz gives less than its clock


@pytest.fixture(scope="module", params=[0.0, FLOOR_MHZ])
def floored(request):
    """A floor, and the shapes of 12 kernels, of which the lowest memory clock was measured at two low core clocks only."""
    rng = np.random.default_rng(5)
    settings = [(np.nan, np.nan)] + [(c, m) for m in MEMORIES_MHZ for c in CORES_MHZ if m > 400.0 or c <= 400.0]
    core, memory = np.array(settings).T
    real = np.maximum(np.nan_to_num(core, nan=2000.0), request.param) / 2000.0
    rate = np.array([BANDWIDTH[each] for each in np.nan_to_num(memory, nan=5000.0)])
    ratio = np.exp(np.linspace(-1.5, 1.5, 12))[:, None]
    time = 1e-3 * ((ratio / real) ** 14 + rate**-14.0) ** (1 / 14) * np.exp(0.002 * rng.standard_normal((12, len(core))))
    power = (60.0 + 200.0 * real) * np.exp(0.004 * rng.standard_normal(time.shape))
    absent = np.full(time.size, np.nan)
    sweep = Sweep(
        tuple(Kernel(f"k{index}", 1) for index in range(12)), np.repeat(np.arange(12), len(core)),
        np.tile(core, 12), np.tile(memory, 12), absent, time.ravel(), (time * power).ravel(),
        0.002 * time.ravel(), 0.0045 * (time * power).ravel(),
        np.tile(np.nan_to_num(core, nan=2000.0), 12), np.tile(np.nan_to_num(memory, nan=5000.0), 12), absent, absent,
        workload="made up", device="made up",
    )  # fmt: skip
    (design,) = Planner(sweep).cost_model.log_time.designs
    return np.log(real), np.log(rate), design.shapes


def test_clocks_below_a_floor_are_taken_at_it(floored):
    real, _, shapes = floored
    assert shapes.core[0] == pytest.approx(real, abs=0.01)


def test_a_memory_clock_measured_at_low_core_clocks_only_has_its_bandwidth(floored):
    _, rate, shapes = floored
    assert shapes.memory[0] == pytest.approx(rate, abs=0.01)
