"""Readings of one run that err together."""

from __future__ import annotations

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.profiling.run_factors import without_factors

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
    told = np.linalg.lstsq(rows, values, rcond=None)[0]
    return told, float(np.std(values - rows @ told))


def test_the_wave_is_told_as_well_as_if_runs_were_alike() -> None:
    errors: dict[str, list[float]] = {"plain": [], "turned": []}
    for seed in range(20):
        runs = _runs(0.03, seed)
        told, _ = _fitted(runs)
        turned = without_factors(runs, [rows @ told for rows, _ in runs], float(told[0]))
        again, noise_w = _fitted(turned)
        assert noise_w < 1.3 * NOISE_W
        errors["plain"].append(float(told[2]) - WAVE_W)
        errors["turned"].append(float(again[2]) - WAVE_W)
    assert np.std(errors["turned"]) < 0.5 * np.std(errors["plain"])
    assert np.std(errors["turned"]) < 2.0 * NOISE_W / np.sqrt(10 * 27 / 2)


def test_runs_that_are_alike_stay_as_they_are() -> None:
    runs = _runs(0.0, 1)
    told, _ = _fitted(runs)
    turned = without_factors(runs, [rows @ told for rows, _ in runs], float(told[0]))
    again, _ = _fitted(turned)
    assert np.allclose(again, told, atol=0.5)


def test_too_few_readings_to_tell() -> None:
    runs = [(rows[:1], values[:1]) for rows, values in _runs(0.03, 2)]
    empty = (np.empty((0, 3)), np.empty(0))
    assert without_factors([*runs, empty], [values for _, values in [*runs, empty]], IDLE_W) == [*runs, empty]
