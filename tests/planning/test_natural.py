"""Plans of caps, from rows at clocks that nobody requested."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from wastenot.planning.natural import as_caps
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner, plan
from wastenot.study.sweep import CurveErrors, Kernel, Sweep

KNOTS = np.linspace(1450.0, 1975.0, 8)
KERNELS = (Kernel("flat", 10), Kernel("steep", 5), Kernel("product", 3))
SLOPES = {"flat": 0.0, "steep": -0.8, "product": -1.0}
RANGES = {"flat": KNOTS, "steep": KNOTS, "product": np.array([1380.0, 1440.0, 1500.0, 1720.0])}
AUTO_MHZ = {"flat": 1980.0, "steep": 1980.0, "product": 1487.0}
POWER_W = {"flat": 600.0, "steep": 500.0, "product": 690.0}


def natural_sweep(time_error=2e-3, power_error=5e-3, level_error=0.0, rng=None, with_curves=True):
    """Times that follow a power of the clock; errors of knots have a common part, the level."""
    rows, curves = [], {}
    for index, kernel in enumerate(KERNELS):
        knots, auto = RANGES[kernel.name], AUTO_MHZ[kernel.name]
        cov = np.eye(len(knots)) + (level_error / time_error) ** 2
        log_time = SLOPES[kernel.name] * np.log(knots / auto)
        log_power = 2.0 * np.log(knots / auto)
        if rng is not None:
            log_time = log_time + rng.multivariate_normal(np.zeros(len(knots)), time_error**2 * cov)
            log_power = log_power + rng.multivariate_normal(np.zeros(len(knots)), power_error**2 * cov)
        curves[kernel.name] = CurveErrors(knots, time_error**2 * cov, power_error**2 * cov)
        size = np.sqrt(np.diag(cov))
        for mhz, lt, lp, scale in [(auto, 0.0, 0.0, 0.1), *zip(knots, log_time, log_power, size, strict=True)]:
            time = 1e-3 * math.exp(lt)
            energy = time * POWER_W[kernel.name] * math.exp(lp)
            errors = time * time_error * scale, energy * math.hypot(time_error, power_error) * scale
            rows.append((index, mhz, time, energy, *errors))
        rows[-len(knots) - 1] = (index, np.nan, *rows[-len(knots) - 1][2:])
    kernel_index, core, time, energy, time_se, energy_se = map(np.array, zip(*rows, strict=True))
    effective = np.where(np.isnan(core), [AUTO_MHZ[KERNELS[i].name] for i in kernel_index], core)
    none = np.full(len(time), np.nan)
    return Sweep(
        KERNELS, kernel_index, core, none, none, time, energy, time_se, energy_se, effective, none, none, none,
        workload="toy", device="card", state="natural", curve_errors=curves if with_curves else {},
    )  # fmt: skip


def row_of(sweep, kernel, mhz):
    names = [each.name for each in sweep.kernels]
    own = np.flatnonzero(sweep.kernel_index == names.index(kernel))
    return int(own[np.nanargmin(np.abs(sweep.core_mhz[own] - mhz))])


def test_a_cap_within_the_range_runs_at_that_clock():
    caps = as_caps(natural_sweep()).sweep
    row = row_of(caps, "steep", 1605.0)
    assert caps.core_mhz[row] == 1605.0 == caps.effective_core_mhz[row]
    assert caps.time_s[row] == pytest.approx(1e-3 * (1605 / 1975) ** -0.8, rel=1e-12)  # auto is at the end of the range
    assert caps.energy_j[row] / caps.time_s[row] == pytest.approx(500.0 * (1605 / 1975) ** 2.0, rel=1e-12)


def test_a_cap_above_the_clock_at_auto_changes_nothing():
    sweep = natural_sweep()
    caps = as_caps(sweep).sweep
    for mhz in (1500.0, 1710.0, 1965.0):
        row = row_of(caps, "product", mhz)
        assert caps.core_mhz[row] == mhz and caps.effective_core_mhz[row] == 1487.0
        assert (caps.time_s[row], caps.energy_j[row]) == (1e-3, pytest.approx(0.69))
    assert plan(sweep, max_slowdown=0.0).assignments[2].core_mhz is None


def test_below_the_clocks_seen_a_kernel_takes_as_many_cycles_and_as_much_power_as_at_the_lowest():
    caps = as_caps(natural_sweep()).sweep
    for kernel in ("flat", "steep"):
        lowest, below = row_of(caps, kernel, 1455.0), row_of(caps, kernel, 1380.0)
        assert caps.core_mhz[below] == 1380.0
        longer = 1450.0 / 1380.0 * (1450.0 / 1455.0) ** SLOPES[kernel]
        assert caps.time_s[below] / caps.time_s[lowest] == pytest.approx(longer, rel=1e-9)
        power_w = caps.energy_j / caps.time_s
        assert power_w[below] == pytest.approx(power_w[lowest] * (1450.0 / 1455.0) ** 2.0, rel=1e-9)


def test_a_kernel_that_was_hardly_seen_at_other_clocks_stands_in_the_way_of_no_cap_for_all():
    planner = Planner(natural_sweep()).at("iteration")
    rows = planner.units[0].rows
    settings = [planner.costs.setting(row).core_mhz for row in rows[1:, 0]]
    assert settings[0] == 1380.0 and settings[-1] == 1965.0


def test_flat_kernels_are_capped_and_steep_ones_are_not():
    made = plan(natural_sweep(), max_slowdown=0.003)
    clocks = {row.kernel: row.core_mhz for row in made.assignments}
    assert clocks["flat"] == 1455.0 and clocks["steep"] is None
    assert made.state == "natural" and made.expected.energy_change < -0.1


def test_an_error_of_the_level_cancels_in_changes():
    sure, level = (Planner(natural_sweep(level_error=error)) for error in (0.0, 0.02))
    row = row_of(level.sweep, "steep", 1605.0)
    first = level.costs.start[1]
    for planner, most in ((sure, 0.0045), (level, 0.0045)):
        time = planner.posteriors.time_s
        change = time.variance[row] + time.variance[first] - 2 * time.with_baseline[row]
        assert math.sqrt(change) / time.mean[first] < most
    assert level.sweep.time_se_s[row] / level.sweep.time_s[row] < 0.0045  # of the ratio times auto, which is known well


def test_rows_from_a_file_count_as_independent():
    caps = as_caps(natural_sweep(with_curves=False))
    assert caps.errors is not None
    own = caps.errors.log_time[1]
    assert own.shape == (1 + 40, 1 + 40) and np.linalg.eigvalsh(own).min() > -1e-15


@pytest.mark.slow
def test_promises_hold_over_many_noisy_studies():
    """Expected changes of plans are within their 95 % intervals as often as they should be, by the true curves."""
    studies, rng, held, over = 100, np.random.default_rng(3), [], []
    truth = as_caps(natural_sweep()).sweep
    for _ in range(studies):
        sweep = natural_sweep(time_error=4e-3, power_error=1e-2, level_error=5e-3, rng=rng)
        made = Planner(sweep).plan(Objective("waste", 0.02))
        chosen = [row_of(truth, row.kernel, row.core_mhz) if row.core_mhz else row_of_auto(truth, row.kernel)
                  for row in made.assignments]  # fmt: skip
        count = np.array([kernel.count for kernel in KERNELS])
        base = [row_of_auto(truth, kernel.name) for kernel in KERNELS]
        energy = count @ truth.energy_j[chosen] / (count @ truth.energy_j[base]) - 1.0
        time = count @ truth.time_s[chosen] / (count @ truth.time_s[base]) - 1.0
        low, high = made.expected.energy_change_interval
        held.append(low <= energy <= high)
        over.append(time > 0.02)
    assert sum(held) >= 0.95 * studies - 3 * math.sqrt(studies * 0.95 * 0.05)
    assert sum(over) <= 0.05 * studies + norm.ppf(0.999) * math.sqrt(studies * 0.05 * 0.95)


def row_of_auto(sweep, kernel):
    names = [each.name for each in sweep.kernels]
    own = np.flatnonzero(sweep.kernel_index == names.index(kernel))
    return int(own[np.isnan(sweep.core_mhz[own])][0])
