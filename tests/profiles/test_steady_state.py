"""Where power is steady: plateaus, and power that swings about one."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from wastenot.core.arrays import FloatArray
from wastenot.devices.instrument import BurstRun
from wastenot.profiles.runs import TimedRun, merged, merged_others, unit_clocks
from wastenot.profiles.steady_state import steady_power, steady_power_by_octaves, swings
from wastenot.profiles.surface import Band, Surface


class Levels:
    """As much of a surface as is looked at."""

    def __init__(self, power_w: FloatArray, error_w: float) -> None:
        self._power_w, self._error_w = power_w, error_w

    def unit_means(self, first: int, last: int) -> Band:
        """Of each unit."""
        return Band(self._power_w[first:last], np.full(last - first, self._error_w))

    def mean(self, first: int, last: int) -> tuple[float, float]:
        """Over units."""
        return float(self._power_w[first:last].mean()), self._error_w


def _levels(power_w: FloatArray, error_w: float) -> Surface:
    return cast(Surface, cast(Any, Levels(power_w, error_w)))


UNIT = np.arange(3000)
# As an H200 under its power limit: 940 W for 30 units, then 725 W, and 0.2 s of 600 W in each second.
CAPPED = np.where(UNIT < 30, 940.0, np.where(UNIT % 1000 > 800, 600.0, 725.0))


def test_power_that_swings_has_no_last_unit_to_wait_for() -> None:
    surface = _levels(CAPPED, 2.0)
    assert steady_power(surface, 3000, 0) > 1500
    assert swings(surface, 3000)
    assert 100 <= steady_power_by_octaves(surface, 3000, 0) <= 1500


def test_what_is_not_known_well_does_not_swing() -> None:
    rng = np.random.default_rng(1)
    surface = _levels(500.0 - 100.0 * np.exp(-UNIT / 3.0) + 15.0 * rng.standard_normal(3000), 15.0)
    assert steady_power(surface, 3000, 0) > 1500
    assert not swings(surface, 3000)
    assert steady_power_by_octaves(surface, 3000, 4) <= 24


def test_a_plateau_from_the_first_on() -> None:
    surface = _levels(np.full(3000, 500.0), 1.0)
    assert steady_power(surface, 3000, 2) == 2
    assert steady_power_by_octaves(surface, 3000, 2) == 2


def test_what_comes_before_is_merged_where_it_is_in_a_row() -> None:
    kernel = np.array([0] * 100 + [1] * 4)
    begin = np.concatenate([1e-5 * np.arange(100), 1e-3 + 2e-3 * np.arange(4)])
    run = BurstRun(kernel, begin, np.append(begin[1:], 9e-3), {}, ())
    found = merged_others(run, 1, 1e-4)
    assert found.kernel.tolist() == [0] * 10 + [1] * 4
    assert found.begin_s[0] == 0.0 and found.end_s[9] == run.end_s[99]
    in_turn = BurstRun(np.tile([0, 1], 52), begin, np.append(begin[1:], 9e-3), {}, ())
    assert len(merged_others(in_turn, 1, 1e-4).kernel) == 104


def test_merged_executions_have_the_mean_clock_of_all() -> None:
    begin_s = np.array([0.0, 1.0, 2.0, 5.0, 6.0, 7.0])
    run = BurstRun(
        np.array([0, 1, 1, 1, 1, 1]), begin_s, np.append(begin_s[1:], 8.0), {}, (),
        counted_mhz=np.array([900.0, 1000.0, 2000.0, 1500.0, 1700.0, 100.0]),
    )  # fmt: skip
    found = merged(run, 1, 2)
    assert found.counted_mhz is not None
    assert found.counted_mhz.tolist() == [900.0, pytest.approx(1750.0), pytest.approx(1600.0)]
    timed = TimedRun(run.kernel, run.begin_s, run.end_s, 0.0, {}, counted_mhz=run.counted_mhz)
    short = TimedRun(run.kernel[:3], run.begin_s[:3], run.end_s[:3], 0.0, {})
    clocks_mhz = unit_clocks([timed, short], 1, 2, 3)
    assert clocks_mhz[0, :2] == pytest.approx([1750.0, 1600.0]) and np.isnan(clocks_mhz[0, 2])
    assert np.isnan(clocks_mhz[1]).all()
