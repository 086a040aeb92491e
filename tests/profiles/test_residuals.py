"""Errors of readings besides noise: factors that runs have, and what a fitted power leaves unexplained."""

from __future__ import annotations

import numpy as np
import pytest

from wastenot.core.arrays import FloatArray
from wastenot.devices.instrument import Channel, Readings
from wastenot.profiles.residuals import Misfit, misfit_of, without_run_factors
from wastenot.profiles.runs import TimedRun

IDLE_W, LEVEL_W, WAVE_W, NOISE_W = 100.0, 500.0, 20.0, 2.0


def _runs(factor: float, seed: int) -> list[tuple[FloatArray, FloatArray]]:
    """Ten runs of thirty readings: idle, a level, and a wave in it; each run stronger or weaker by its own factor."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(10):
        rows = np.stack([np.ones(30), np.ones(30), np.cos(rng.uniform(0.0, 6.28, 30))], axis=1)
        rows[:3, 1:] = 0.0  # at rest
        above = rows[:, 1] * LEVEL_W + rows[:, 2] * WAVE_W
        values = IDLE_W + above * (1.0 + factor * rng.standard_normal()) + NOISE_W * rng.standard_normal(30)
        found.append((rows, values))
    return found


def _fitted(runs: list[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, float]:
    rows, values = np.concatenate([one[0] for one in runs]), np.concatenate([one[1] for one in runs])
    fitted = np.linalg.lstsq(rows, values, rcond=None)[0]
    return fitted, float(np.std(values - rows @ fitted))


def test_the_wave_is_told_as_well_as_if_runs_were_alike() -> None:
    errors: dict[str, list[float]] = {"plain": [], "independent": []}
    for seed in range(20):
        runs = _runs(0.03, seed)
        fitted, _ = _fitted(runs)
        independent = without_run_factors(runs, [rows @ fitted for rows, _ in runs], float(fitted[0]))
        again, noise_w = _fitted(independent)
        assert noise_w < 1.3 * NOISE_W
        errors["plain"].append(float(fitted[2]) - WAVE_W)
        errors["independent"].append(float(again[2]) - WAVE_W)
    assert np.std(errors["independent"]) < 0.5 * np.std(errors["plain"])
    assert np.std(errors["independent"]) < 2.0 * NOISE_W / np.sqrt(10 * 27 / 2)


def test_runs_that_are_alike_stay_as_they_are() -> None:
    runs = _runs(0.0, 1)
    fitted, _ = _fitted(runs)
    independent = without_run_factors(runs, [rows @ fitted for rows, _ in runs], float(fitted[0]))
    again, _ = _fitted(independent)
    assert np.allclose(again, fitted, atol=0.5)


def test_too_few_readings_to_tell() -> None:
    runs = [(rows[:1], values[:1]) for rows, values in _runs(0.03, 2)]
    empty = (np.empty((0, 3)), np.empty(0))
    assert without_run_factors([*runs, empty], [values for _, values in [*runs, empty]], IDLE_W) == [*runs, empty]


MISFIT_NOISE_W, UNIT_S, UNITS = 4.0, 1e-3, 20


def _misfit(off_w: float = 0.0, runs_w: float = 0.0, window_s: float = 2e-5, runs: int = 300) -> Misfit:
    """Residuals of noise, of a wave over units of odd number, and of an offset for each run."""
    rng = np.random.default_rng(5)
    channel = Channel("total", 1e-3, window_s)
    begin_s = UNIT_S * np.arange(UNITS)
    made: list[TimedRun] = []
    residuals: list[FloatArray] = []
    for _ in range(runs):
        end_s = np.sort(rng.uniform(0.0, UNITS * UNIT_S, UNITS))
        unit = (end_s - 0.5 * window_s) / UNIT_S
        wave_w = np.where(np.floor(unit) % 2 == 1, off_w * np.sqrt(2.0) * np.sin(2.0 * np.pi * unit), 0.0)
        residuals.append(wave_w + MISFIT_NOISE_W * rng.standard_normal(UNITS) + runs_w * rng.standard_normal())
        readings = {"total": Readings(end_s, np.zeros(UNITS))}
        made.append(TimedRun(np.zeros(UNITS, dtype=np.intp), begin_s, begin_s + UNIT_S, 0.0, readings))
    return misfit_of(made, residuals, channel, own=0, per_unit=1)


def test_noise_alone_is_no_misfit() -> None:
    misfit = _misfit()
    assert max(misfit.inside(unit, unit + 1) for unit in range(UNITS)) < 0.25 * MISFIT_NOISE_W
    assert misfit.common_w < 0.1


def test_misfit_is_found_in_the_units_that_have_it() -> None:
    misfit = _misfit(off_w=5.0)
    assert misfit.inside(7, 8) == pytest.approx(5.0, rel=0.2)
    assert misfit.inside(8, 9) < 0.25 * MISFIT_NOISE_W


def test_runs_that_differ_have_an_error_in_common_however_many_their_readings() -> None:
    assert _misfit(runs_w=6.0, runs=100).common_w == pytest.approx(0.6, rel=0.2)


def test_windows_longer_than_a_unit_tell_nothing_of_places_in_it() -> None:
    misfit = _misfit(off_w=5.0, window_s=2.0 * UNIT_S)
    assert not len(misfit.residual_w)
    assert misfit.inside(7, 8) == 0.0
