"""Profiles against the exact truth of simulated GPUs, and that each step of the method earns its place."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from testbed.binomial import least_hits
from testbed.profiled_gpu import SETTLINGS, Truth, averaging_h200, gpu, kernel
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import Burst
from wastenot.devices.simulated.dynamics import Firmware
from wastenot.profiles.options import ProfileOptions
from wastenot.profiles.profile import profile as profile_of
from wastenot.profiles.result import UnitPower
from wastenot.profiles.runs import BurstRuns, TimedRun, fullest_bin, on_host_clock, unit_times
from wastenot.profiles.surface import fit_surface

SLOW = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemm:2048", "gemm:8192"])
def test_logger_of_1_ms(name: str) -> None:
    """25 µs to 5 ms: at most 3 % of the range from idle to peak; SSE and SSP found."""
    seed = 1
    device, spec = gpu("mi300x", seed), kernel(name)
    truth = Truth.of(device, spec)
    profile = profile_of(spec, device, options=ProfileOptions(seed=seed, runs=100))
    assert profile.complete
    assert profile.group == 1
    for state in ("SSE", "SSP"):
        assert truth.error(profile, state) < 0.03
        assert profile.state(state).channels["total"].resolved
    assert abs(profile.state("SSE").unit - truth.sse) <= 1
    allowed = 1 if truth.ssp <= 8 else 0.25 * truth.ssp
    assert abs(profile.state("SSP").unit - truth.ssp) <= allowed
    assert profile.counter is not None
    assert abs(profile.counter.difference) < 0.02


@pytest.mark.slow
def test_bands_hold_the_power_where_readings_are_many() -> None:
    """Errors are a few watts there, of which noise is the least: of 95 % bands at least 85 % hold."""
    held = []
    for name, seed in product(("gemm:4096", "gemm:8192"), (1, 2)):
        device, spec = gpu("mi300x", seed), kernel(name)
        truth = Truth.of(device, spec)
        profile = profile_of(spec, device, options=ProfileOptions(seed=seed, budget_s=15.0, check=False))
        halfway = truth.until(Truth.of(device, spec))
        held += [halfway.held(profile, state) for state in ("SSE", "SSP")]
    assert np.mean(held) > 0.85


@pytest.mark.slow
def test_stated_means_hold_the_truth_with_a_sensor_that_lags() -> None:
    """However power rises, 95 % intervals hold; by chance the bound is missed in one of 1,000 such tests."""
    held = []
    for number, settling in enumerate(SETTLINGS.values()):
        seed = 700 + number
        device, spec = gpu("h200", seed, **settling), kernel("gemm:4096")
        truth = Truth.of(device, spec)
        profile = profile_of(spec, device, options=ProfileOptions(seed=seed, budget_s=40.0, check=False))
        halfway = truth.until(Truth.of(device, spec))
        for state in profile.states:
            found = state.channels["total"]
            held.append(abs(found.mean_w - halfway.mean_in(profile, state.name)) <= 1.96 * found.mean_error_w)
    assert sum(held) >= least_hits(len(held))


def test_groups_of_short_executions() -> None:
    """Under 25 µs executions in a row are one unit."""
    device, spec = gpu("mi300x", 3), kernel("gemv:4096")
    profile = profile_of(spec, device, options=ProfileOptions(seed=3, runs=40, executions=40, check=False))
    assert profile.group == 2
    truth = Truth.of(device, spec)
    assert max(truth.error(profile, state) for state in ("SSE", "SSP")) < 0.03


@pytest.mark.parametrize(("name", "lags"), [SLOW("gemm:12288", True), SLOW("gemm:8192", False)])
def test_slow_sensors(name: str, lags: bool) -> None:
    """1 to 5 ms: at most 6 % with the H200's sensor as it was measured (it lags, its delay drifts) and as published."""
    device, spec = gpu("h200", 1) if lags else averaging_h200(1), kernel(name)
    truth = Truth.of(device, spec)
    profile = profile_of(spec, device, options=ProfileOptions(seed=1, budget_s=30.0))
    for state in ("SSE", "SSP"):
        assert profile.state(state).channels["total"].resolved
        assert truth.error(profile, state) < 0.06
    assert profile.counter is not None
    assert abs(profile.counter.difference) < 0.02


def test_shorter_ones_are_groups_with_a_mean_and_a_band() -> None:
    """A kernel of 0.2 ms: what is inside is beyond a sensor of 25 ms, and the profile says so."""
    device, spec = gpu("h200", 1), kernel("gemm:4096")
    profile = profile_of(spec, device, options=ProfileOptions(seed=1, budget_s=15.0, check=False))
    assert profile.group > 1
    steady = profile.state("SSP").channels["total"]
    assert not steady.resolved
    assert np.ptp(steady.power_w) == 0.0
    assert any("does not resolve" in note for note in profile.notes)
    truth = Truth.of(device, spec)
    unit = profile.state("SSP").unit
    true_w = truth.mean_w[(unit - 1) * profile.group : unit * profile.group].mean()
    assert abs(steady.mean_w - true_w) / truth.range_w < 0.06


KINDS: dict[str, dict[str, Any]] = {
    "rising": {"firmware": None, "slow_share": 0.35, "slow_s": 2e-3},
    "flat": {"firmware": None, "slow_share": 0.0, "fast_s": 2e-6},
    "falling": {
        "firmware": Firmware(heavy_w=500.0, boost=0.25, reaction_s=4e-3, drop=0.0, recover_s=1e-3),
        "slow_share": 0.2,
        "slow_s": 0.5e-3,
    },
}


@pytest.mark.parametrize(("kind", "budget_s"), [SLOW("flat", 15.0), ("falling", 15.0), SLOW("rising", 60.0)])
def test_steady_execution_and_steady_power(kind: str, budget_s: float) -> None:
    device, spec = gpu("mi300x", 5, **KINDS[kind]), kernel("gemm:4096")
    truth = Truth.of(device, spec)
    profile = profile_of(spec, device, options=ProfileOptions(seed=5, runs=60, budget_s=budget_s, check=False))
    if kind == "falling":
        assert truth.mean_w.max() > 1.05 * truth.mean_w[-1]
    assert abs(profile.state("SSE").unit - truth.sse) <= 1
    assert abs(profile.state("SSP").unit - truth.ssp) <= (1 if truth.ssp <= 8 else 0.25 * truth.ssp)


def test_warm_up_of_another_length() -> None:
    device, spec = gpu("mi300x", 6, warm_up=(0.4, 0.3, 0.2, 0.15, 0.1)), kernel("gemm:8192")
    profile = profile_of(spec, device, options=ProfileOptions(seed=6, runs=40, executions=16, check=False))
    assert abs(profile.state("SSE").unit - 6) <= 1


def test_outliers_have_a_profile_of_their_own() -> None:
    """The next bin: slower executions, which draw less."""
    common, slower = (
        profile_of(
            kernel("gemm:8192"), gpu("mi300x", 7, outlier_chance=0.3, outlier_slower=0.2),
            options=ProfileOptions(seed=7, runs=50, executions=12, outliers=rank, check=False),
        )
        for rank in (0, 1)
    )  # fmt: skip
    assert slower.state("SSP").time_s > 1.1 * common.state("SSP").time_s
    assert slower.state("SSP").channels["total"].mean_w < common.state("SSP").channels["total"].mean_w
    assert slower.golden_runs < common.golden_runs


# ---- each step earns its place -----------------------------------------------------------------------------------


def _runs(name: str, executions: int, runs: int, seed: int) -> tuple[Truth, BurstRuns, object]:
    device, spec = gpu("mi300x", seed), kernel(name)
    collected = BurstRuns(Burst(((spec, executions),)))
    instrument = device.instrument()
    rng = np.random.default_rng(seed)
    with instrument.prepare(collected.burst) as bench:
        collected.runs += [bench.run(0.01 + float(rng.uniform(0.0, 1e-3))) for _ in range(runs)]
    return Truth.of(device, spec), collected, instrument


def _error(truth: Truth, runs: list[TimedRun], channel: object, unit: int) -> float:
    from wastenot.devices.instrument import Channel

    assert isinstance(channel, Channel)
    surface = fit_surface(runs, channel, kernels=1, own=0)
    band = surface.inside(unit, unit + 1)
    share = (np.arange(len(band.power_w)) + 0.5) / len(band.power_w)
    return truth.error_of(UnitPower(0.0, 0.0, share, band.power_w, band.error_w, (), 0, True), unit, 1)


def test_synchronising_drift_and_bins_each_make_it_better() -> None:
    from wastenot.devices.simulated.instrument import SimulatedInstrument

    truth, collected, instrument = _runs("gemm:4096", 60, 200, 1)
    assert isinstance(instrument, SimulatedInstrument)
    channel = instrument.channels[0]
    trips = [trip for run in collected.runs for trip in run.round_trips]
    unit = 55

    def error(drift: bool = True, synchronised: bool = True, bins: bool = True) -> float:
        runs = on_host_clock(collected.runs, instrument, fit_clocks(trips, drift=drift) if synchronised else None)
        if bins:
            runs = [runs[place] for place in fullest_bin(unit_times(runs, 0, 1, 60).time_s[:, unit], 0.05)]
        return _error(truth, runs, channel, unit)

    best = error()
    assert best < 0.01
    assert error(drift=False) > 3.0 * best
    assert error(synchronised=False) > 10.0 * best
    assert error(bins=False) > 1.5 * best


def test_windows_make_it_better_where_the_sensor_averages() -> None:
    """The same readings taken as power of the moment: the naive profile."""
    device, spec = averaging_h200(4), kernel("gemm:12288")
    profile = profile_of(spec, device, options=ProfileOptions(seed=4, budget_s=20.0, check=False))
    naive = averaging_h200(4)
    point = tuple(replace(channel, window_s=1e-6) for channel in naive.instrument().channels)
    without = profile_of(spec, naive, options=ProfileOptions(seed=4, budget_s=20.0, check=False), channels=point)
    truth = Truth.of(device, spec)
    assert truth.error(profile, "SSP") < 0.06
    assert truth.error(profile, "SSE") < 0.06
    assert truth.error(without, "SSE") > 2.0 * truth.error(profile, "SSE")
