"""A sweep taken at many temperatures, brought to one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from wastenot.planning.noise.temperature import _not_negative, at_one_temperature
from wastenot.study.sweep import Kernel, Sweep

HOT_C = 75.0
CORE_MHZ = np.array([np.nan, 500.0, 1000.0, 1500.0, 2000.0])
NAN = np.full(1, np.nan)


def watts_per_degree(core_mhz: np.ndarray) -> np.ndarray:
    rate, knee = core_mhz[..., None] / 2000.0, np.array([0.6, 0.8])
    voltage = 1.0 + 0.5 * np.maximum(rate - knee, 0.0) / (1.0 - knee)
    return 0.1 + 0.3 * ((voltage**3 - 1.0) / (1.5**3 - 1.0)).mean(axis=-1)


def sweep_at(temperature_c: np.ndarray, limit_w: float = np.inf, seed: int = 0, noise: float = 1e-5) -> Sweep:
    """Five kernels at every setting, once for each row of temperatures of shape (rounds, settings)."""
    rng = np.random.default_rng(seed)
    rounds, settings = temperature_c.shape
    kernels = 5
    core = np.broadcast_to(np.nan_to_num(CORE_MHZ, nan=2000.0), (rounds, kernels, settings))
    leakage = watts_per_degree(core) * (temperature_c[:, None] - HOT_C)
    steady = 100.0 + 20.0 * np.arange(kernels)[:, None] + leakage
    core = np.minimum(core, 2000.0 * ((limit_w - steady) / 150.0) ** (1 / 3))  # at most the clock whose power is the limit
    time = 1e-3 * (2000.0 / core) ** 0.5
    power = (steady + 150.0 * (core / 2000.0) ** 3) * (1 + noise * rng.standard_normal(core.shape))
    shape = (rounds, kernels, settings)
    absent = np.full(rounds * kernels * settings, np.nan)
    return Sweep(
        tuple(Kernel(f"k{index}", 1) for index in range(kernels)),
        np.broadcast_to(np.arange(kernels)[:, None], shape).ravel(),
        np.broadcast_to(CORE_MHZ, shape).ravel(), absent, absent,
        time.ravel(), (time * power).ravel(), absent, absent,
        core.ravel(), absent, absent,
        np.broadcast_to(temperature_c[:, None], shape).ravel(),
        workload="made up", device="made up",
    )  # fmt: skip


ROUNDS_C = np.array([[HOT_C, 40.0, 50.0, 60.0, 70.0], [HOT_C, 65.0, 72.0, 70.0, 50.0]])


def test_every_row_is_as_it_would_be_at_the_temperature_of_the_baselines():
    raw, wanted = sweep_at(ROUNDS_C), sweep_at(np.full((2, 5), HOT_C))
    found = at_one_temperature(raw).sweep
    free = raw.energy_j / raw.time_s < 0.9 * (raw.energy_j / raw.time_s).max()  # the highest might be at a limit
    assert found.energy_j[free] == pytest.approx(wanted.energy_j[free], rel=1e-4)
    assert found.time_s[free] == pytest.approx(wanted.time_s[free], rel=1e-9)
    assert np.abs(raw.energy_j / wanted.energy_j - 1)[free].max() > 0.02


def test_under_a_power_limit_heat_costs_time_not_power():
    raw, wanted = sweep_at(ROUNDS_C, limit_w=300.0), sweep_at(np.full((2, 5), HOT_C), limit_w=300.0)
    found = at_one_temperature(raw).sweep
    limited = raw.energy_j / raw.time_s > 299.0
    assert limited.any()
    assert found.energy_j[limited] / found.time_s[limited] == pytest.approx(300.0, rel=1e-3)
    before, after = (np.abs(np.log(sweep.time_s / wanted.time_s))[limited].max() for sweep in (raw, found))
    assert after < 0.5 * before


@pytest.mark.parametrize(
    "sweep",
    [
        sweep_at(ROUNDS_C[:1]),  # nothing is repeated
        sweep_at(np.full((2, 5), HOT_C)),  # repeats differ in nothing
        sweep_at(np.full((2, 5), np.nan)),  # temperatures are not known
    ],
)
def test_a_sweep_that_says_nothing_of_temperature_stays_as_it_is(sweep):
    found = at_one_temperature(sweep)
    assert found.sweep is sweep
    assert not found.time_errors.any()
    assert not found.power_errors.any()


@pytest.mark.parametrize("limit_w", [np.inf, 300.0])
def test_what_repeats_leave_open_is_stated(limit_w):
    """Repeats a few degrees apart with noise: corrections are off by about as much as is said, all to the same side."""
    few_c = ROUNDS_C[:1] + np.array([[0.0], [4.0]])
    wanted = sweep_at(np.full((2, 5), HOT_C + 2.0), limit_w=limit_w)
    deviation = []
    for seed in range(60):
        noisy = sweep_at(few_c, limit_w=limit_w, seed=seed, noise=0.004)
        found = at_one_temperature(noisy)
        free = noisy.energy_j / noisy.time_s < 0.9 * (noisy.energy_j / noisy.time_s).max()
        error = np.log(found.sweep.energy_j / wanted.energy_j)[free].mean()
        deviation.append(error / np.hypot(*found.power_errors[free, :2].mean(axis=0)))
    assert 0.5 < np.sqrt(np.mean(np.square(deviation))) < 1.4


def test_two_coefficients_that_are_not_negative_are_those_of_scipy():
    rng = np.random.default_rng(0)
    for trial in range(200):
        columns = rng.normal(size=(rng.integers(3, 40), 2))
        columns[:, 1] = rng.normal() * columns[:, 0] + 10 ** rng.uniform(-3, 0.5) * columns[:, 1]
        columns[:, 0] *= trial % 7 > 0
        values = rng.normal(size=len(columns))
        found = _not_negative(columns, values)
        assert found.min() >= 0.0
        assert np.linalg.norm(values - columns @ found) == pytest.approx(nnls(columns, values)[1], rel=1e-9)
