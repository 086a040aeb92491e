"""The steps of a profile by themselves, and what they say to bad input."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.profiled_gpu import gpu, kernel
from testbed.true_executions import true_executions
from wastenot.core.errors import BadInputError, CannotRunError, DeviceError
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import Burst, BurstRun, RoundTrip
from wastenot.devices.open import open_device, simulated_device
from wastenot.devices.simulated.dynamics import GpuClockModel
from wastenot.devices.simulated.instrument import SimulatedInstrument
from wastenot.devices.simulated.preset import find_preset
from wastenot.meters.sensors.updates import on_grid
from wastenot.profiles.guidance import executions_in_unit, guidance_for
from wastenot.profiles.options import ProfileOptions
from wastenot.profiles.profile import profile as profile_of
from wastenot.profiles.runs import fullest_bin
from wastenot.profiles.steady_state import steady_execution


@pytest.mark.parametrize(
    ("unit_s", "runs", "margin", "readings"),
    [(30e-6, 400, 0.05, 6), (100e-6, 200, 0.05, 10), (500e-6, 200, 0.02, 50), (2e-3, 200, 0.02, 200)],
)
def test_the_table_of_guidance(unit_s: float, runs: int, margin: float, readings: int) -> None:
    """FinGraV's Table I."""
    found = guidance_for(unit_s)
    assert (found.runs, found.margin, found.readings(unit_s)) == (runs, margin, readings)
    assert guidance_for(unit_s, runs=7, margin=0.1).runs == 7


def test_executions_too_short_are_grouped_and_far_too_short_ones_refused() -> None:
    assert executions_in_unit(30e-6, 1e-8) == 1
    assert executions_in_unit(8e-6, 1e-8) == 4
    assert executions_in_unit(8e-6, 4e-6) == 10
    with pytest.raises(CannotRunError, match="too short for a clock"):
        executions_in_unit(1e-7, 1e-8)


def test_the_fullest_bin() -> None:
    times = np.array([1.0, 1.3, 1.01, 1.31, 1.02, 0.9, 1.03])
    assert fullest_bin(times, 0.05).tolist() == [0, 2, 4, 6]
    assert fullest_bin(times, 0.05, rank=1).tolist() == [1, 3]
    assert fullest_bin(times, 0.05, rank=2).tolist() == [5]
    assert fullest_bin(times, 0.05, rank=3).tolist() == []


@pytest.mark.parametrize("seed", range(5))
def test_offset_and_drift(seed: int) -> None:
    """Moments told over are right to what is stated, with jittering, lopsided round trips."""
    rng = np.random.default_rng(seed)
    trips = []
    for run in range(100):
        for trip in range(5):
            before = 0.1 * run + 1e-3 * trip
            there, back = 4e-6 + rng.exponential(3e-6), 4e-6 + rng.exponential(3e-6)
            trips.append(RoundTrip(before, 77.0 + 1.00004 * (before + there), before + there + back))
    fit = fit_clocks(trips)
    host = np.array([0.0, 5.0, 10.0])
    assert np.abs(fit.host(77.0 + 1.00004 * host) - host).max() < 4.0 * fit.error_s
    assert fit.error_s < 2e-6
    assert fit.drift == pytest.approx(4e-5, abs=5e-7)
    still = fit_clocks(trips, drift=False)
    assert np.abs(still.host(77.0 + 1.00004 * host) - host).max() > 1e-4


def test_clocks_that_cannot_be_told_together() -> None:
    with pytest.raises(DeviceError, match="2 round trips"):
        fit_clocks([RoundTrip(0.0, 1.0, 0.1), RoundTrip(1.0, 2.0, 1.1)])
    with pytest.raises(DeviceError, match="stands still"):
        fit_clocks([RoundTrip(float(at), 5.0, at + 0.1) for at in range(5)])
    with pytest.raises(DeviceError, match="cannot be synchronised"):
        device = gpu("mi300x", gpu_clock=GpuClockModel(resolution_s=1e9))
        profile_of(kernel("gemm:8192"), device)


def test_stamps_on_the_grid_of_the_sensor() -> None:
    rng = np.random.default_rng(3)
    true = 5.0 + 0.0998 * np.delete(np.arange(200), [3, 4, 50, 120])
    polled = true + rng.uniform(0.0, 1e-3, len(true))
    found = on_grid(polled, 0.1)
    assert np.abs(found - true).max() < 1e-4
    irregular = np.cumsum(rng.uniform(0.05, 0.15, 100))
    assert on_grid(irregular, 0.1) is irregular
    assert on_grid(true[:4], 0.1).tolist() == true[:4].tolist()


def test_steady_execution_is_where_times_get_no_better() -> None:
    times = np.tile([1.4, 1.2, 1.06, 1.0, 1.0, 1.002, 0.999, 1.0], (5, 1))
    assert steady_execution(times, 0.05) == 3
    assert steady_execution(np.ones((5, 8)), 0.05) == 0


# ---- bad input ---------------------------------------------------------------------------------------------------


def test_a_device_without_a_power_sensor() -> None:
    preset = find_preset("h200")
    blind = preset.model_copy(update={"sensors": preset.sensors.model_copy(update={"power": None})})
    with pytest.raises(BadInputError, match="no power sensor"):
        profile_of(kernel("gemm:8192"), simulated_device(blind, "sim:h200"))


def test_devices_that_cannot_run_executions_one_by_one() -> None:
    with pytest.raises(BadInputError, match="only simulated in virtual time"):
        open_device("sim:h200", wall_time=True).instrument()


def test_a_kernel_too_short_for_the_clock() -> None:
    device = gpu("h200", gpu_clock=GpuClockModel(resolution_s=1e-3, read_s=1e-6))
    with pytest.raises(CannotRunError, match="too short for a clock"):
        profile_of(kernel("gemv:2048"), device)


def test_too_few_readings_are_kept_and_marked() -> None:
    """A bin that few runs fall into: what was collected is there, and said to be too little."""
    device = gpu("mi300x", 1, outlier_chance=0.02)
    profile = profile_of(kernel("gemm:4096"), device, options=ProfileOptions(runs=40, outliers=1, executions=30, seed=1))
    assert not profile.complete
    assert any("too few readings of interest" in note for note in profile.notes)
    assert profile.counter is None
    assert len(profile.logged.power_w) > 0


@pytest.mark.parametrize(
    ("preset", "units", "note"),
    [
        ("mi300x", 6, "executions in a run: 6, too few"),
        ("mi300x", 12, "power was still changing after 12 executions"),
        pytest.param("mi300x", 60, "", marks=pytest.mark.slow),
        pytest.param("h200", 1, "executions in a run: 1, too few", marks=pytest.mark.slow),
    ],
)
def test_executions_as_asked_for_that_do_not_tell_sse_and_ssp(preset: str, units: int, note: str) -> None:
    options = ProfileOptions(executions=units, seed=1, runs=60, budget_s=20.0)
    profile = profile_of(kernel("gemm:8192"), gpu(preset, 1), options=options)
    assert profile.complete == (not note)
    assert any(said.startswith(note) for said in profile.notes) == bool(note)


def test_what_fails_on_the_way_keeps_what_was_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter(range(60))

    def failing(instrument: SimulatedInstrument, burst: Burst, rest_s: float, run=SimulatedInstrument._run) -> BurstRun:
        if next(left, None) is None:
            raise DeviceError("sim:mi300x: the GPU is lost")
        return run(instrument, burst, rest_s)

    monkeypatch.setattr(SimulatedInstrument, "_run", failing)
    profile = profile_of(kernel("gemm:8192"), gpu("mi300x", 1), options=ProfileOptions(seed=1))
    assert not profile.complete
    assert profile.stopped == "sim:mi300x: the GPU is lost"
    with pytest.raises(DeviceError, match="gemm-8192: stopped early: sim:mi300x: the GPU is lost"):
        profile.raise_if_stopped()
    assert profile.states[-1].channels["total"].mean_w > 500.0


def test_what_fails_at_once_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(instrument: SimulatedInstrument, burst: Burst, rest_s: float) -> BurstRun:
        raise DeviceError("sim:mi300x: the GPU is lost")

    monkeypatch.setattr(SimulatedInstrument, "_run", failing)
    with pytest.raises(DeviceError, match="the GPU is lost"):
        profile_of(kernel("gemm:8192"), gpu("mi300x", 1))


def test_long_runs_whose_delay_stays_unknown_leave_an_incomplete_profile_of_the_short_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where a sensor's delay jumped during each of them, and no time is left for others."""
    monkeypatch.setattr("wastenot.profiles.session.late_among", lambda moment_s, *_: np.full(len(moment_s), np.nan))
    profile = profile_of(kernel("gemm:4096"), gpu("h200", 1), options=ProfileOptions(seed=1, budget_s=20.0, check=False))
    assert not profile.complete
    assert "the budget of 20 s left no time for more" in profile.stopped
    assert {name for state in profile.states for name in state.channels} == {"total"}
    assert all(state.channels["total"].mean_w > 500.0 for state in profile.states)


# ---- the simulated instrument --------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["mi300x", "h200"])
def test_steady_power_is_that_of_the_operating_point(preset: str) -> None:
    from wastenot.core.setting import AUTO
    from wastenot.devices.protocol import Task

    device, spec = gpu(preset), kernel("gemm:8192")
    instrument = device.instrument()
    assert isinstance(instrument, SimulatedInstrument)
    last = true_executions(instrument, Burst(((spec, 200),)))[-1]
    point = device.truth(Task.of_kernel(spec), AUTO, device.engine.temperature_c)
    assert last.time_s == pytest.approx(point.time_s, rel=1e-9)
    assert last.mean_w["total"] == pytest.approx(point.power_w, rel=1e-4)


def test_components_add_up() -> None:
    device = gpu("mi300x")
    instrument = device.instrument()
    assert isinstance(instrument, SimulatedInstrument)
    for execution in true_executions(instrument, Burst(((kernel("gemv:8192"), 30),))):
        parts = sum(execution.power_w[name] for name in ("XCD", "IOD", "HBM"))
        assert np.allclose(parts, execution.power_w["total"])


def test_light_kernels_draw_more_after_heavy_ones_and_heavy_ones_do_not_care() -> None:
    """FinGraV's takeaway 4, as the preset has it."""
    device = gpu("mi300x")
    instrument = device.instrument()
    assert isinstance(instrument, SimulatedInstrument)
    heavy, light = kernel("gemm:8192"), kernel("gemv:8192")
    alone = true_executions(instrument, Burst(((light, 500),)))[-1].mean_w["total"]
    after = true_executions(instrument, Burst(((heavy, 20), (light, 1))))[-1].mean_w["total"]
    assert after > 1.02 * alone
    steady = true_executions(instrument, Burst(((heavy, 40),)))[-1].mean_w["total"]
    late = true_executions(instrument, Burst(((heavy, 40), (light, 5), (heavy, 3))))[-1].mean_w["total"]
    assert late == pytest.approx(steady, rel=0.02)


def test_runs_are_the_same_for_the_same_seed() -> None:
    def readings(seed: int) -> list[float]:
        instrument = gpu("mi300x", seed).instrument()
        with instrument.prepare(Burst(((kernel("gemm:8192"), 5),))) as bench:
            return list(bench.run(0.01).readings["total"].power_w)

    assert readings(1) == readings(1)
    assert readings(1) != readings(2)
