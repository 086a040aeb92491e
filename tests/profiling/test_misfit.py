"""What is left unexplained of readings, told from their noise."""

from __future__ import annotations

import numpy as np
import pytest

from wastenot.arrays import FloatArray
from wastenot.devices.instrument import Channel, Readings
from wastenot.profiling.collect import TimedRun
from wastenot.profiling.misfit import Misfit, misfit_of

NOISE_W, UNIT_S, UNITS = 4.0, 1e-3, 20


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
        residuals.append(wave_w + NOISE_W * rng.standard_normal(UNITS) + runs_w * rng.standard_normal())
        readings = {"total": Readings(end_s, np.zeros(UNITS))}
        made.append(TimedRun(np.zeros(UNITS, dtype=np.intp), begin_s, begin_s + UNIT_S, 0.0, readings))
    return misfit_of(made, residuals, channel, own=0, group=1)


def test_noise_alone_is_no_misfit() -> None:
    misfit = _misfit()
    assert max(misfit.inside(unit, unit + 1) for unit in range(UNITS)) < 0.25 * NOISE_W
    assert misfit.common_w < 0.1


def test_misfit_is_found_in_the_units_that_have_it() -> None:
    misfit = _misfit(off_w=5.0)
    assert misfit.inside(7, 8) == pytest.approx(5.0, rel=0.2)
    assert misfit.inside(8, 9) < 0.25 * NOISE_W


def test_runs_that_differ_have_an_error_in_common_however_many_their_readings() -> None:
    assert _misfit(runs_w=6.0, runs=100).common_w == pytest.approx(0.6, rel=0.2)


def test_windows_longer_than_a_unit_tell_nothing_of_places_in_it() -> None:
    misfit = _misfit(off_w=5.0, window_s=2.0 * UNIT_S)
    assert not len(misfit.residual_w)
    assert misfit.inside(7, 8) == 0.0
