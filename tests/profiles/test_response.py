"""Sensors that lag, and whose delay the runs themselves tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from testbed.profiled_gpu import Truth, h200_with, kernel
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import BurstRun, Readings, burst_of
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.instrument import SimulatedInstrument
from wastenot.profiles.options import ProfileOptions
from wastenot.profiles.profile import profile as profile_of
from wastenot.profiles.response import fit_response, late_among
from wastenot.profiles.runs import TimedRun, on_host_clock, rest_before_run_s
from wastenot.profiles.surface import fit_surface


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


def test_the_delay_is_found_and_runs_of_another_delay_are_left_out() -> None:
    delay_s = 0.017
    runs, instrument = _short_runs(_lagging(2, delay_s), 2, 80)
    odd = [5, 23, 41, 60]
    for place in odd:
        log = runs[place].readings["total"]
        runs[place] = replace(runs[place], readings={"total": Readings(log.moment_s + 0.015, log.power_w)})
    unsure = replace(instrument.channels[0], delay_s=0.014, delay_error_s=0.003)
    found = fit_response(runs, unsure, kernels=1, own=0, group=1)
    assert found.channel.delay_s == pytest.approx(delay_s, abs=2.5e-3)
    assert abs(found.channel.delay_drift) < 2e-4
    assert found.channel.lag_s == pytest.approx(0.0125, rel=0.1)
    assert abs(found.channel.delay_s - delay_s) <= 3.0 * found.channel.delay_error_s < unsure.delay_error_s
    # A reading taken at rest, long before or after, says nothing of its run's delay.
    telling = [place for place in odd if np.any(runs[place].readings["total"].power_w > 250.0)]
    assert telling
    kept = np.flatnonzero(~np.isnan(found.late_s))
    assert not set(telling) & set(kept.tolist())
    assert len(kept) > 70


@pytest.mark.slow
def test_slower_runs_do_not_move_the_delay() -> None:
    """Runs that take longer end later, as if readings were: they are not fitted, and get the delay of the others."""
    runs, instrument = _short_runs(_lagging(5, 0.012), 5, 30)
    took_s = np.array([run.end_s[-1] for run in runs])
    slow = np.flatnonzero(took_s > 1.05 * np.median(took_s))
    assert 0 < len(slow) < 20
    unsure = replace(instrument.channels[0], delay_s=0.0105, delay_error_s=0.002)
    found = fit_response(runs, unsure, kernels=1, own=0, group=1)
    alike = fit_response([run for place, run in enumerate(runs) if place not in slow], unsure, kernels=1, own=0, group=1)
    assert found.channel == alike.channel
    assert not np.isnan(found.late_s[slow]).any()


def test_a_run_between_two_delays_gets_neither() -> None:
    known_s, late_s = [1.0, 2.0, 3.0, 4.0], np.array([0.0, 0.0, np.nan, 0.02])
    assert late_among([0.5, 1.5, 4.5], known_s, late_s).tolist() == [0.0, 0.0, 0.02]
    assert np.isnan(late_among([2.5, 3.0, 3.5], known_s, late_s)).all()
    assert np.isnan(late_among([1.0], known_s, np.full(4, np.nan))).all()


def test_an_uncertain_delay_widens_the_first_execution() -> None:
    """A delay moves readings against executions: the first gains what it is told too early, the mean hardly changes."""
    runs, instrument = _short_runs(_lagging(6, 0.012), 6, 40)
    exact = fit_surface(runs, instrument.channels[0], kernels=1, own=0)
    unsure = fit_surface(runs, replace(instrument.channels[0], delay_error_s=3e-4), kernels=1, own=0)
    assert np.array_equal(exact.unit_means(0, 12).power_w, unsure.unit_means(0, 12).power_w)
    first_w, whole_w = (np.sqrt(unsure.mean(0, until)[1] ** 2 - exact.mean(0, until)[1] ** 2) for until in (1, exact.units))
    full_w = exact.mean(4, 12)[0] - exact.idle_w
    execution_s = float(np.median(runs[0].end_s - runs[0].begin_s))
    assert first_w == pytest.approx(full_w * 3e-4 / execution_s, rel=0.4)
    assert whole_w < 0.15 * first_w


def test_a_power_below_rest_is_not_believed() -> None:
    """Where a fit rings, as with runs that no common power explains, its error is at least what is impossible of it."""
    runs, instrument = _short_runs(_lagging(7, 0.012), 7, 30)
    surface = fit_surface(runs, instrument.channels[0], kernels=1, own=0)
    mean = surface._mean.copy()
    mean[surface.basis.first[0] : surface.basis.first[0] + 8] -= 2_000.0
    band = replace(surface, _mean=mean).unit_means(0, 1)
    assert band.power_w[0] < -500.0
    assert band.error_w[0] > surface.idle_w - band.power_w[0]


@pytest.mark.slow
def test_delays_that_drift_and_jump_are_followed() -> None:
    """A sensor that samples every 20 ms by a clock of its own: runs before and after a jump are told apart."""
    runs, instrument = _short_runs(h200_with(3, sample_drift=5e-4, noise_w=1.0), 3, 60)
    channel = instrument.channels[0]
    found = fit_response(runs, channel, kernels=1, own=0, group=1)
    assert found.channel.delay_drift == pytest.approx(5e-4, abs=3e-5)
    assert len(set(found.late_s[~np.isnan(found.late_s)].tolist())) >= 2
    assert np.count_nonzero(~np.isnan(found.late_s)) > 50
    log = instrument._bench.logs[0]
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
    profile = profile_of(spec, device, options=ProfileOptions(seed=3, budget_s=30.0))
    assert max(truth.error(profile, state) for state in ("SSE", "SSP")) < 0.06
    assert profile.counter is not None
    assert abs(profile.counter.difference) < 0.02
