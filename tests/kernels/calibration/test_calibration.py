"""Calibration to a simulated GPU whose truth is known: what it recovers, what it refuses, what it writes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from testbed.calibration_sweeps import KERNELS, PAIRS, TOY, spec, toy_gpu, true_sweep
from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import simulated_device
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.preset import parse_preset, preset_toml, read_preset
from wastenot.kernels.calibration.calibrate import calibrate_sweep
from wastenot.kernels.calibration.clocks import clock_table, learn_clock_mapping
from wastenot.kernels.calibration.points import CalibrationError, choose_pairs, choose_points, core_levels, points_of_sweep


@pytest.fixture(scope="module")
def twin():
    return calibrate_sweep(true_sweep(toy_gpu()), name="twin", power_limit_w=350.0, base=read_preset(TOY))


@pytest.mark.parametrize("core", [600.0, 1020.0, 1320.0, 1530.0, 1710.0])
@pytest.mark.parametrize("memory", [810.0, 5001.0, 9501.0])
def test_held_out_clocks(twin, core, memory):
    """Without noise the twin is typically within 1 % of the truth and nowhere far off."""
    truth = toy_gpu()
    copy = simulated_device(twin.preset, "sim:twin")
    errors = []
    for kernel in KERNELS:
        wanted = truth.truth(Task.of_kernel(kernel), Setting(core, memory))
        found = copy.truth(Task.of_kernel(kernel), Setting(core, memory))
        error = (found.time_s / wanted.time_s - 1, found.time_s * found.power_w / wanted.time_s / wanted.power_w - 1)
        errors.append(error)
    assert np.median(np.abs(errors), axis=0) == pytest.approx(0, abs=0.01)
    assert np.abs(errors).max() < 0.06


def test_the_power_limit_holds_the_default_clocks_as_in_truth(twin):
    copy = simulated_device(twin.preset, "sim:twin")
    for kernel in KERNELS:
        wanted, found = toy_gpu().truth(Task.of_kernel(kernel), AUTO), copy.truth(Task.of_kernel(kernel), AUTO)
        assert found.time_s == pytest.approx(wanted.time_s, rel=0.03)
        assert found.power_w == pytest.approx(wanted.power_w, rel=0.03)


def test_the_report_says_how_good_it_is(twin):
    fitted, points, kernels = twin.report.errors
    assert fitted.time.median < 0.01 and fitted.energy.median < 0.01
    assert points.time.median < 0.01 and points.energy.median < 0.01
    assert kernels.time.median < 0.02 and kernels.energy.median < 0.02
    assert fitted.points == (PAIRS + 1) * len(KERNELS) and points.points == (PAIRS + 1 - 8) * len(KERNELS)
    assert "Toy GPU" in twin.preset.provenance["parameters"]
    assert "held-out points" in twin.preset.provenance["errors"]


def test_the_preset_file_round_trips(twin):
    text = preset_toml(twin.preset)
    assert parse_preset(text.encode(), "twin.toml") == twin.preset
    odd = twin.preset.model_copy(update={"kernels": {'a "b".c\\ü\n\x7f': twin.preset.kernels["gemm1"]}})
    assert parse_preset(preset_toml(odd).encode(), "odd.toml") == odd
    assert parse_preset(preset_toml(read_preset(TOY)).encode(), "toy.toml") == read_preset(TOY)


@pytest.mark.slow
def test_outliers_hardly_matter(twin):
    sweep = true_sweep(toy_gpu())
    energy = sweep.energy_j.copy()
    energy[[7, 100, 160, 260]] *= 3.0
    robust = calibrate_sweep(replace(sweep, energy_j=energy), name="robust", power_limit_w=350.0)
    assert robust.report.errors[1].energy.median < 0.015


def test_clocks_that_do_not_take_effect_as_requested():
    sweep = true_sweep(toy_gpu(), core=(210.0, 420.0, 1200.0, 2100.0), memory=(405.0, 810.0, 9501.0))
    table = clock_table(sweep)
    assert (table.core_from_mhz, table.core_to_mhz, table.core_step_mhz) == (210.0, 2100.0, 30.0)
    assert table.boost_mhz == pytest.approx(1965.0, abs=15.0)
    assert [(pair.memory_mhz, pair.core_above_mhz, pair.to_memory_mhz) for pair in table.moved] == [(405, 420, 810)]
    mapping = learn_clock_mapping(sweep)
    assert mapping.in_effect(2100.0, 405.0) == (1965.0, 810.0)
    assert mapping.in_effect(420.0, 405.0) == (420.0, 405.0)


@pytest.mark.parametrize(
    ("kernels", "core", "memory", "says"),
    [
        (KERNELS, (840.0, 1950.0), (810.0, 9501.0), "2 core clocks"),
        (KERNELS[:3], (840.0, 1200.0, 1950.0), (810.0, 9501.0), "3 kernels"),
        (KERNELS, (840.0, 1200.0, 1950.0), (9501.0,), "3 points"),
    ],
)
def test_insufficient_data_is_refused(kernels, core, memory, says):
    with pytest.raises(CalibrationError, match=says) as refusal:
        calibrate_sweep(true_sweep(toy_gpu(), kernels, core, memory, record_effective=False), name="no")
    assert "sweep more" in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_kernel_at_default_clocks_only_is_refused_by_name():
    sweep = true_sweep(toy_gpu(), record_effective=False)
    kept = (sweep.kernel_index != 4) | np.isnan(sweep.core_mhz)
    columns = {name: value[kept] for name, value in vars(sweep).items() if isinstance(value, np.ndarray)}
    with pytest.raises(CalibrationError, match="'work2'"):
        calibrate_sweep(replace(sweep, **columns), name="no")


def test_little_data_gives_warnings():
    found = calibrate_sweep(true_sweep(toy_gpu(), KERNELS[:5], CORE_FEW, (9501.0,), record_effective=False), name="few")
    text = " ".join(found.report.warnings)
    assert "4 core clocks" in text and "5 kernels" in text and "4 points" in text and "one memory clock" in text
    assert "errors on unseen points are unknown" in text and len(found.report.errors) == 1


CORE_FEW = (840.0, 1200.0, 1620.0, 1950.0)


def test_repeats_are_averaged_and_power_limited_rows_ignored():
    sweep = true_sweep(toy_gpu())
    twice = {name: np.concatenate([value, value]) for name, value in vars(sweep).items() if isinstance(value, np.ndarray)}
    twice["time_s"] = np.concatenate([sweep.time_s * 0.9, sweep.time_s * 1.1])
    once, both = points_of_sweep(sweep), points_of_sweep(replace(sweep, **twice))
    assert both.time_s == pytest.approx(once.time_s)
    limited = replace(sweep, power_limit_w=np.where(sweep.core_mhz == 840.0, 200.0, np.nan))
    assert points_of_sweep(limited).mask.sum() == once.mask.sum() - 3 * len(KERNELS)


def test_chosen_points_spread_and_differ_by_kernel():
    points = points_of_sweep(true_sweep(toy_gpu(), record_effective=False))
    mask = choose_points(points, 8)
    assert (mask.sum(axis=1) == 8).all()
    assert len({tuple(row) for row in mask.tolist()}) > 3
    chosen = {(c, m) for c, m in zip(points.core_mhz[mask > 0], points.memory_mhz[mask > 0], strict=True)}
    assert len(chosen) >= 0.85 * PAIRS
    from collections import Counter

    assert choose_pairs([(1000.0, 5001.0)], Counter(), 8) == [0]


def test_many_clocks_become_a_dozen_levels():
    assert core_levels(np.arange(210.0, 2101.0, 15.0)) == pytest.approx(np.linspace(210, 2100, 12))
    assert core_levels(np.array([210.0, 1050.0, 1935.0, 1950.0])) == pytest.approx([210, 1050, 1942.5])


def test_a_twin_refuses_unknown_kernels(twin):
    copy = simulated_device(twin.preset, "sim:twin")
    with pytest.raises(Exception, match="does not know kernel 'gemm9'"):
        copy.truth(Task.of_kernel(spec("gemm9", "other", 0.0, 0.0)), AUTO)
    assert issubclass(CalibrationError, BadInputError)
