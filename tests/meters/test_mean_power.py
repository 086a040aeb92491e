"""Standard errors of means of readings that follow each other."""

import numpy as np
import pytest

from wastenot.meters.mean_power import error_of_mean


def series(kind: str, length: int, rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(length + 200)
    if kind == "independent":
        return noise[200:]
    if kind == "differences":  # what a step at an uncertain moment does to two laps
        return np.diff(noise)[199:] + 0.3 * noise[200:]
    first, second = {"swinging": (1.0, -0.9), "drifting": (0.6, 0.0)}[kind]
    values = np.zeros(len(noise))
    for place in range(2, len(noise)):
        values[place] = first * values[place - 1] + second * values[place - 2] + noise[place]
    return values[200:]


@pytest.mark.parametrize(("length", "least"), [(20, 0.85), (30, 0.88), (60, 0.9)])
@pytest.mark.parametrize("kind", ["independent", "swinging", "drifting", "differences"])
def test_intervals_hold_the_mean_at_the_stated_rate(kind, length, least):
    rng = np.random.default_rng(1)
    found = [series(kind, length, rng) for _ in range(600)]
    held = np.mean([abs(values.mean()) <= 1.96 * error_of_mean(values) for values in found])
    assert (0.7 if kind == "drifting" else least) <= held <= 0.995


def test_a_swing_is_not_taken_for_noise():
    rng = np.random.default_rng(2)
    found = [series("swinging", 30, rng) for _ in range(300)]
    naive = np.mean([values.std(ddof=1) / np.sqrt(30) for values in found])
    assert np.mean([error_of_mean(values) for values in found]) < 0.75 * naive


def test_readings_that_do_not_change_have_no_error():
    assert error_of_mean(np.full(10, 3.0)) == 0.0
    assert error_of_mean(np.array([1.0, 2.0])) > 0.0
