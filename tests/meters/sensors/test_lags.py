"""Sensors that are first-order lags and whose delays drift and jump, on simulated GPUs and in readings of real ones."""

from __future__ import annotations

from functools import partial

import pytest

from testbed.h200_sensor import KERNELS, sensor_of
from testbed.sensed_loads import LOAD, delay_error_s, identified_total, sensed
from wastenot.devices.simulated.dynamics import Firmware
from wastenot.meters.sensors.identity import SensorIdentity

SLOW = partial(pytest.param, marks=pytest.mark.slow)


def check(
    name: str, seed: int, dynamics: dict[str, object] | None = None, budget_s: float = 30.0, **changes: float
) -> SensorIdentity:
    instrument, truth = sensed(name, seed, dynamics, **changes)
    found = identified_total(instrument, LOAD, budget_s)
    assert found.lag_s is not None and found.window_s is None, found
    assert found.period_s == pytest.approx(truth.period_s, rel=1e-4)
    assert found.lag_s == pytest.approx(truth.lag_s, rel=0.1)
    assert abs(found.lag_s - truth.lag_s) < 4.0 * found.lag_se_s
    assert found.delay_drift == pytest.approx(truth.sample_drift, abs=5e-5)
    assert delay_error_s(instrument, truth, found) < 1e-3
    assert found.other_left_w > 1.1 * found.left_w
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_h200(seed):
    found = check("h200", seed)
    assert found.drifts and found.delay_drift == pytest.approx(2e-4, abs=4.0 * found.delay_drift_se)
    assert found.noise_idle_w == pytest.approx(2.5, rel=0.5)


@pytest.mark.slow
def test_a_jump_is_told():
    found = check("h200", 30)  # one of the few in whose minutes the delay jumps
    assert found.drifts and found.sample_s == pytest.approx(0.02, abs=1e-3)
    assert abs(found.sample_s - 0.02) < 4.0 * found.sample_se_s
    assert 0.002 <= found.delay_s <= 0.022, "the delay is of a moment since the last jump"


@pytest.mark.slow
@pytest.mark.parametrize("drift", [3e-4, -3e-4])
def test_several_jumps(drift):
    found = check("v100", 1, lag_s=0.005, sample_s=0.005, sample_drift=drift)
    assert found.sample_s == pytest.approx(0.005, rel=0.05)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("h200", {"sample_s": 0.0, "sample_drift": 0.0}),
        SLOW("v100", {"lag_s": 0.005, "delay_s": 0.03}),
        SLOW("rtx-3080-ti", {"lag_s": 0.05}),
    ],
)
def test_lags_that_do_not_drift(name, changes):
    found = check(name, 3, **changes)
    assert not found.drifts and found.sample_s is None
    assert found.as_channel().delay_error_s == 0.0


def test_a_mean_whose_delay_drifts():
    instrument, truth = sensed("h200", 3, lag_s=0.0)
    found = identified_total(instrument, LOAD)
    assert found.lag_s is None and found.window_s == pytest.approx(0.025, rel=0.1)
    assert found.delay_drift == pytest.approx(2e-4, abs=5e-5)
    assert delay_error_s(instrument, truth, found) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("slow_s", [1e-3, 2e-3])
def test_the_lag_of_a_sensor_is_told_from_that_of_power(slow_s):
    check("h200", 4, {"slow_s": slow_s, "slow_share": 0.7})


@pytest.mark.slow
@pytest.mark.parametrize("slow_s", [1e-3, 2e-3])
def test_power_that_lags_is_no_lag_of_the_sensor(slow_s):
    dynamics = {"slow_s": slow_s, "slow_share": 0.7}
    instrument, truth = sensed("v100", 4, dynamics)
    found = identified_total(instrument, LOAD)
    assert found.lag_s is None and found.window_s == pytest.approx(truth.window_s, rel=0.1)


@pytest.mark.slow
def test_power_that_a_limit_takes_down():
    """As on an H200: products draw a third more than they may for 30 ms, then less."""
    firmware = Firmware(heavy_w=400.0, boost=0.39, reaction_s=0.03, drop=0.05, recover_s=0.2)
    check("h200", 1, {"firmware": firmware}, budget_s=60.0)


def test_readings_of_a_real_h200():
    """Bursts of 26 ms from rest: a lag of 12 to 13 ms whose delay grows by 0.2 ms each second, no mean.

    What other kernels say is in a table of docs/fingrav.md (test_pages.py).
    """
    updates, fit = sensor_of(KERNELS[0])
    assert updates.period_s == pytest.approx(0.10002, abs=1e-5)
    assert fit.parameters.is_lag and 0.012 < fit.parameters.span_s < 0.0132
    assert fit.other_rms_w > 1.1 * fit.rms_w
    assert fit.parameters.drift == pytest.approx(2.1e-4, abs=6e-5)


@pytest.mark.slow
def test_readings_are_used_whatever_the_pace_where_no_two_bursts_run_alike(monkeypatch):
    """As under a power limit that throttles every burst differently."""
    monkeypatch.setattr("wastenot.meters.sensors.channel_readings._SIMILAR_PACE", 0.0)
    check("rtx-3080-ti", 3, lag_s=0.05)
