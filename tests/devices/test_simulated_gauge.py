"""Simulated power gauges that sample by a clock of their own, against the sawtooth that their delay then is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wastenot.devices.instrument import burst_of
from wastenot.devices.open import simulated_device
from wastenot.devices.protocol import Task
from wastenot.devices.simulated import bench as simulated_bench
from wastenot.devices.simulated.hardware import GaugeModel
from wastenot.devices.simulated.preset import Preset, find_preset
from wastenot.workloads.primitives import primitive

LOAD = primitive("gemm:4096")[0]
GAUGE = GaugeModel(period_s=0.1, window_s=0.025, lag_s=0.0125, delay_s=0.002, sample_s=0.02, sample_drift=2e-4)


def preset_with(gauge: GaugeModel) -> Preset:
    preset = find_preset("h200")
    return preset.model_copy(
        update={
            "sensors": preset.sensors.model_copy(update={"power": gauge}),
            "dynamics": preset.dynamics.quiet(),
            "noise": preset.noise.model_copy(update={"run_time": 0.0, "run_power": 0.0}),
        }
    )


@pytest.mark.parametrize("drift", [2e-4, -3e-4, 0.0])
def test_delays_are_a_sawtooth(drift):
    model = GAUGE.model_copy(update={"sample_drift": drift})
    stamp_s = 0.037 + 0.1 * np.arange(4000)
    late_s = stamp_s - model.seen_until_s(stamp_s, 0.0123)
    between_s = 0.02 / (1.0 + drift)
    assert late_s == pytest.approx(0.002 + (stamp_s - 0.002 - 0.0123) % between_s, abs=1e-10)
    assert late_s.min() >= 0.002 and late_s.max() < 0.002 + between_s
    step_s = np.diff(late_s)
    jumps = np.abs(step_s) > 0.01
    assert step_s[~jumps] / 0.1 == pytest.approx(np.full((~jumps).sum(), drift), rel=1e-3, abs=1e-9)
    assert jumps.sum() == pytest.approx(400.0 * abs(drift) / 0.02, abs=1.0)
    assert np.abs(step_s[jumps]) == pytest.approx(np.full(jumps.sum(), between_s), abs=1e-4)
    assert np.all(np.sign(step_s[jumps]) == -np.sign(drift))


def test_without_samples_delays_are_one():
    model = GAUGE.model_copy(update={"sample_s": 0.0})
    stamp_s = np.linspace(1.0, 2.0, 11)
    assert stamp_s - model.seen_until_s(stamp_s, 0.0) == pytest.approx(np.full(11, 0.002))
    assert model.phases_s(np.random.default_rng(4))[1] == 0.0


@pytest.mark.parametrize("lag_s", [0.0, 0.0125])
def test_what_is_logged_is_power_up_to_the_latest_sample(lag_s, monkeypatch):
    """Each reading of a burst's log against the truth, seen until where the sawtooth says."""
    monkeypatch.setattr(simulated_bench, "_POLL_S", 0.0)
    model = GAUGE.model_copy(update={"lag_s": lag_s, "noise_w": 0.0})
    instrument = simulated_device(preset_with(model), "sim:x", seed=5).instrument()
    (log,) = instrument._bench.logs
    assert 0.0 < log.sample_phase_s < 0.02
    traced = []
    plain = instrument._trace
    monkeypatch.setattr(instrument, "_trace", lambda *given: traced.append(plain(*given)) or traced[-1])
    engine = instrument._bench.engine
    monkeypatch.setattr(engine, "play", lambda *given, play=engine.play: (traced.append(engine.now_s), play(*given)))
    with instrument.prepare(burst_of(LOAD, 2000)) as bench:
        for _ in range(3):
            idle_w = np.array([instrument._idle().total, 0.0, 0.0])
            traced.clear()
            run = bench.run(0.35)
            told, began_s = traced
            stamp_s, power_w = run.readings["total"].moment_s, run.readings["total"].power_w
            late_s = 0.002 + (stamp_s - 0.002 - log.sample_phase_s) % (0.02 / 1.0002)
            end_s = stamp_s - late_s - began_s
            history = told.history
            seen_w = history.lagged_w(end_s, lag_s, idle_w) if lag_s else history.mean_w(end_s - 0.025, end_s, idle_w)
            assert len(stamp_s) >= 7 and np.ptp(power_w) > 400.0
            assert power_w == pytest.approx(seen_w.sum(axis=1), rel=0.01)
            assert power_w[stamp_s > began_s] == pytest.approx(seen_w.sum(axis=1)[stamp_s > began_s], rel=1e-9)


def test_what_it_says_of_itself_is_what_a_user_could_know():
    (channel,) = simulated_device(preset_with(GAUGE), "sim:x", seed=1).instrument().channels
    assert (channel.delay_s, channel.sample_s, channel.lag_s) == (pytest.approx(0.012), 0.02, 0.0125)
    assert channel.delay_error_s == pytest.approx(0.006) and channel.delay_drift == 0.0
    plain = GAUGE.model_copy(update={"sample_s": 0.0})
    (channel,) = simulated_device(preset_with(plain), "sim:x", seed=1).instrument().channels
    assert (channel.delay_s, channel.sample_s, channel.delay_error_s) == (0.002, 0.0, 0.0)


def test_the_polled_gauge_follows_a_step_as_a_lag_of_the_latest_sample():
    """Power goes from idle to a constant: what is read tells how long before the reading it was looked at."""
    device = simulated_device(preset_with(GAUGE.model_copy(update={"noise_w": 0.0})), "sim:x", seed=3)
    engine = device.engine
    engine.advance(1.0)
    idle_w = device.sensors.power_w()
    gauge = device.sensors._power
    late_s = []
    for _ in range(40):
        engine.advance(1.0)
        # Half way from a reading to the next, less what a step needs to be seen well.
        tick_s = gauge._phase_s + (math.floor((engine.now_s - gauge._phase_s) / 0.1) + 2) * 0.1
        engine.advance(tick_s - 0.035 - engine.now_s)
        engine.start(Task.of_kernel(LOAD))
        began_s, energy_j = engine.now_s, engine.energy_at(engine.now_s)
        engine.advance(tick_s + 1e-6 - engine.now_s)
        busy_w = (engine.energy_at(engine.now_s) - energy_j) / (engine.now_s - began_s)
        share = (device.sensors.power_w() - idle_w) / (busy_w - idle_w)
        late_s.append(tick_s - began_s + 0.0125 * math.log(1.0 - share))
        expected_s = 0.002 + (tick_s - 0.002 - gauge._sample_phase_s) % (0.02 / 1.0002)
        assert late_s[-1] == pytest.approx(expected_s, abs=2e-4)
        engine.stop([0.0])
        engine.advance(0.5)
    assert np.ptp(late_s) > 0.005
