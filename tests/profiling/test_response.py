"""Sensors that lag, and whose delay the runs themselves tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.profiling.truth import Truth, h200_with, kernel
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import BurstRun, Readings, burst_of
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.instrument import SimulatedInstrument
from wastenot.profiling.profile import profile_kernel
from wastenot.profiling.response import fit_response
from wastenot.profiling.runs import TimedRun, on_host_clock, rest_before_run_s
from wastenot.profiling.session import Options


def _lagging(seed: int, delay_s: float) -> SimulatedDevice:
    """A lag whose delay stays as it is."""
    return h200_with(seed, delay_s=delay_s, noise_w=1.0, sample_s=0.0, sample_drift=0.0)


def _short_runs(device: SimulatedDevice, seed: int, runs: int) -> tuple[list[TimedRun], SimulatedInstrument]:
    instrument = device.instrument()
    assert isinstance(instrument, SimulatedInstrument)
    rng = np.random.default_rng(seed)
    collected: list[BurstRun] = []
    with instrument.prepare(burst_of(kernel("gemm:8192"), 16)) as bench:
        for _ in range(runs):
            now_s = instrument.now_s()
            rest_s = rest_before_run_s(instrument.channels[0], collected, now_s, 0.01, rng, aligned=True)
            collected.append(bench.run(rest_s))
    fit = fit_clocks(trip for run in collected for trip in run.round_trips)
    return on_host_clock(collected, instrument, fit), instrument


@pytest.mark.parametrize("delay_s", [0.017])
def test_the_delay_is_found_and_runs_of_another_delay_are_left_out(delay_s: float) -> None:
    runs, instrument = _short_runs(_lagging(2, delay_s), 2, 80)
    odd = [5, 23, 41, 60]
    for place in odd:
        log = runs[place].readings["total"]
        runs[place] = replace(runs[place], readings={"total": Readings(log.moment_s + 0.015, log.power_w)})
    unsure = replace(instrument.channels[0], delay_s=0.0105, delay_error_s=0.006)
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
    runs, instrument = _short_runs(h200_with(3, sample_drift=5e-4, noise_w=1.0), 3, 150)
    channel = instrument.channels[0]
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
