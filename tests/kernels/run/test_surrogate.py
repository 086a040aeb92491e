"""Costs predicted from few points: how good they are, and whether their errors can be trusted."""

from itertools import pairwise

import numpy as np
import pytest

from testbed.known_truth import true_sweep
from wastenot.core.arrays import FloatArray
from wastenot.devices.open import open_device
from wastenot.kernels.run.surrogate import Predicted, draw_log_costs, predict_costs
from wastenot.meters.tasks import find_tasks
from wastenot.sweeping.grid import Grid

PRESETS = ("sim:rtx-3080-ti", "sim:h200")


class Table:
    """The truth of a simulated GPU, as arrays of shape (kernels, settings)."""

    def __init__(self, name: str, step_mhz: float) -> None:
        device, tasks = open_device(name), find_tasks("gpt3-small", name)
        settings = Grid(core_step_mhz=step_mhz).settings(device.clocks.supported_clocks())
        sweep = true_sweep(device, tasks, settings)
        shape = len(tasks.tasks), len(settings) + 1
        self.core_mhz = np.array([setting.core_mhz or 0.0 for setting in settings])
        self.memory_mhz = np.array([setting.memory_mhz or 0.0 for setting in settings])
        time, energy = sweep.time_s.reshape(shape), sweep.energy_j.reshape(shape)
        self.auto, self.time_s, self.energy_j = (time[:, :1], energy[:, :1]), time[:, 1:], energy[:, 1:]

    def predicted(self, measured: FloatArray, kernels: FloatArray | slice = slice(None)) -> Predicted:
        """From the points measured."""
        return predict_costs(
            self.core_mhz, self.memory_mhz,
            np.where(measured, self.time_s, np.nan)[kernels], np.where(measured, self.energy_j, np.nan)[kernels],
            self.auto[0][kernels], self.auto[1][kernels],
        )  # fmt: skip


@pytest.fixture(scope="module", params=PRESETS)
def table(request):
    return Table(request.param, 300.0)


def some(table: Table, of_each: int, seed: int = 0) -> FloatArray:
    random = np.random.default_rng(seed).random(table.time_s.shape)
    return np.argsort(np.argsort(random, axis=1), axis=1) < of_each


def errors(found: Predicted, table: Table, where: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
    """How far off time and energy are, and how far off they are said to be."""
    return [
        (np.abs(np.log(found.time_s / table.time_s))[where], found.time_error[where]),
        (np.abs(np.log(found.energy_j / table.energy_j))[where], found.energy_error[where]),
    ]


@pytest.mark.parametrize("points", [0, 2, 6])
def test_predictions_know_their_errors(table, points):
    measured = some(table, points)
    for off, said in errors(table.predicted(measured), table, ~measured):
        assert np.mean(off < 2.0 * said) > 0.85
        assert np.median(off) > 0.05 * np.median(said)  # nor are they said to be far worse than they are


def test_more_points_predict_better(table):
    hidden = ~some(table, 10)
    medians = [
        [np.median(off) for off, _ in errors(table.predicted(some(table, points)), table, hidden)] for points in (0, 3, 10)
    ]
    for fewer, more in pairwise(medians):
        assert all(b < a for a, b in zip(fewer, more, strict=True))
    assert max(medians[-1]) < 0.03


def test_a_kernel_profits_from_what_others_showed(table):
    few, all_points = some(table, 2), some(table, 99)
    off_alone, off_with_others = [], []
    for kernel in range(0, len(table.time_s), 6):
        this = (np.arange(len(table.time_s)) == kernel)[:, None]
        hidden = this & ~few
        off_alone += [off.mean() for off, _ in errors(table.predicted(this & few), table, hidden)]
        off_with_others += [off.mean() for off, _ in errors(table.predicted(few | (all_points & ~this)), table, hidden)]
    assert np.mean(off_with_others) < 0.8 * np.mean(off_alone)


def test_measured_points_are_nearly_kept(table):
    measured = some(table, 5)
    for off, _ in errors(table.predicted(measured), table, measured):
        assert np.median(off) < 0.01


def test_the_order_of_kernels_only_rounds(table):
    measured, order = some(table, 4), np.random.default_rng(1).permutation(len(table.time_s))
    here, there = table.predicted(measured), table.predicted(measured, order)
    np.testing.assert_allclose(here.time_s[order], there.time_s, rtol=1e-6)
    np.testing.assert_allclose(here.energy_error[order], there.energy_error, rtol=1e-5)


def test_one_setting_of_one_kernel_is_enough_to_run():
    one, absent = np.ones((1, 1)), np.full((1, 1), np.nan)
    found = predict_costs(np.array([1200.0]), np.array([5001.0]), absent, absent, one, one)
    assert np.isfinite(found.time_s).all() and (found.energy_error > 0).all()


def test_draws_are_plausible_and_always_the_same():
    core, memory = (600.0, 1200.0, 1800.0), (5001.0, 5001.0, 5001.0)
    draw_log_costs.cache_clear()
    time, energy = draw_log_costs(core, memory)
    assert np.isfinite(time).all() and np.isfinite(energy).all()
    assert (np.diff(time, axis=1) < 1e-9).all()  # a higher clock takes no more time
    power = energy - time
    assert (np.diff(power, axis=1) > -1e-9).all()  # nor less power
    draw_log_costs.cache_clear()
    again, _ = draw_log_costs(core, memory)
    assert np.array_equal(time, again)
