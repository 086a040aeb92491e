"""Sensors that lag, and whose delay the runs themselves tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.measurement.fingrav.truth import Truth, kernel
from wastenot.devices.fine_grain import Burst, Channel, Readings, Run
from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.instrument import SimulatedInstrument
from wastenot.devices.simulated.preset import find_preset
from wastenot.devices.simulated.preset_parts import GaugeModel
from wastenot.measurement.fingrav.clocks import fit_clocks
from wastenot.measurement.fingrav.collect import TimedRun, by_host
from wastenot.measurement.fingrav.phase import Rests
from wastenot.measurement.fingrav.profile import Options, profile_kernel
from wastenot.measurement.fingrav.response import fit_response


def _lagging(seed: int, delay_s: float) -> SimulatedDevice:
    preset = find_preset("h200")
    gauge = GaugeModel(period_s=0.1, window_s=0.025, lag_s=0.0125, delay_s=delay_s, read_s=4e-6, noise_w=1.0)
    sensors = preset.sensors.model_copy(update={"power": gauge})
    return simulated_device(preset.model_copy(update={"sensors": sensors}), "sim:h200", seed=seed)


def _short_runs(seed: int, delay_s: float, runs: int) -> tuple[list[TimedRun], Channel]:
    instrument = _lagging(seed, delay_s).instrument()
    burst = Burst(((kernel("gemm:8192"), 16),))
    rests = Rests(instrument.channels[0], 0.01, True, np.random.default_rng(seed))
    collected = []
    with instrument.prepare(burst) as bench:
        for _ in range(runs):
            collected.append(bench.run(rests.rest_s(instrument.now_s(), collected)))
    fit = fit_clocks(trip for run in collected for trip in run.round_trips)
    return by_host(collected, instrument, fit), instrument.channels[0]


@pytest.mark.parametrize("delay_s", [0.017])
def test_the_delay_is_found_and_runs_of_another_delay_are_left_out(delay_s: float) -> None:
    runs, channel = _short_runs(2, delay_s, 80)
    odd = [5, 23, 41, 60]
    for place in odd:
        log = runs[place].readings["total"]
        runs[place] = replace(runs[place], readings={"total": Readings(log.moment_s + 0.015, log.power_w)})
    unsure = replace(channel, delay_s=0.0105, delay_error_s=0.006)
    found = fit_response(runs, unsure, kernels=1, own=0, group=1)
    assert found.channel.delay_s == pytest.approx(delay_s, abs=2.5e-3)
    assert abs(found.channel.delay_drift) < 2e-4
    assert found.channel.lag_s == pytest.approx(0.0125, rel=0.1)
    assert found.channel.delay_error_s == 0.0
    # A reading taken at rest, long before or after, says nothing of its run's delay.
    telling = [place for place in odd if np.any(runs[place].readings["total"].power_w > 250.0)]
    assert telling
    kept = np.flatnonzero(~np.isnan(found.late_s))
    assert not set(telling) & set(kept.tolist())
    assert len(kept) > 70


def test_delays_that_drift_and_jump_are_followed() -> None:
    """A sensor that samples every 20 ms by a clock of its own: runs before and after a jump are told apart."""
    preset = find_preset("h200")
    assert preset.sensors.power is not None
    gauge = preset.sensors.power.model_copy(update={"sample_drift": 5e-4, "noise_w": 1.0})
    sensors = preset.sensors.model_copy(update={"power": gauge})
    instrument = simulated_device(preset.model_copy(update={"sensors": sensors}), "sim:h200", seed=3).instrument()
    assert isinstance(instrument, SimulatedInstrument)
    channel = instrument.channels[0]
    rests = Rests(channel, 0.01, True, np.random.default_rng(3))
    collected: list[Run] = []
    with instrument.prepare(Burst(((kernel("gemm:8192"), 16),))) as bench:
        for _ in range(150):
            collected.append(bench.run(rests.rest_s(instrument.now_s(), collected)))
    fit = fit_clocks(trip for run in collected for trip in run.round_trips)
    runs = by_host(collected, instrument, fit)
    found = fit_response(runs, channel, kernels=1, own=0, group=1)
    assert found.channel.delay_drift == pytest.approx(5e-4, abs=3e-5)
    assert len(set(found.late_s[~np.isnan(found.late_s)].tolist())) >= 2
    assert np.count_nonzero(~np.isnan(found.late_s)) > 130
    log = instrument._logs[0]
    off_s = []
    for run, late_s in zip(runs, found.late_s, strict=True):
        stamp_s = run.zero_s + run.readings["total"].moment_s
        true_s = stamp_s - log.model.seen_until_s(stamp_s, log.sample_phase_s)
        told_s = found.channel.delay_s + found.channel.delay_drift * (stamp_s - found.channel.delay_at_s) + late_s
        # Readings long before or after a burst tell nothing of its delay; one of them may be across a jump.
        off_s.append(float(np.min(np.abs(told_s - true_s))))
    assert np.nanmax(off_s) < 1e-3


def test_a_profile_with_a_lagging_sensor() -> None:
    device, spec = _lagging(3, 0.01), kernel("gemm:8192")
    truth = Truth.of(device, spec)
    profile = profile_kernel(device, spec, options=Options(seed=3))
    assert max(truth.error(profile, state) for state in ("SSE", "SSP")) < 0.06
    assert profile.counter is not None
    assert abs(profile.counter.difference) < 0.02
