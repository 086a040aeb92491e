"""Bursts on a simulated GPU with a power regulator: what runs right after heavy kernels is slower and draws less."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.profiled_gpu import kernel
from testbed.true_executions import true_executions
from wastenot.devices.instrument import Burst
from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.preset import find_preset

HEAVY, LIGHT = kernel("gemm:8192"), kernel("gemv:8192")


def h200(seed: int = 0, *, regulated: bool = True) -> SimulatedDevice:
    preset = find_preset("h200")
    assert preset.regulator is not None
    changed = preset.model_copy(update={"regulator": preset.regulator.model_copy(update={"bursts": regulated})})
    return simulated_device(changed, "sim:h200", seed=seed)


def executions(device: SimulatedDevice, *steps: tuple[object, int]) -> tuple[np.ndarray, np.ndarray]:
    """Time and mean power of every execution."""
    told = true_executions(device.instrument(), Burst(steps))
    return np.array([each.time_s for each in told]), np.array([each.mean_w["total"] for each in told])


def test_a_heavy_kernel_draws_more_than_the_limit_until_the_regulator_sees_it():
    """On H200s 30 ms at 950 W, then 19 % longer at 690 W (docs/fingrav.md)."""
    time_s, power_w = executions(h200(), (HEAVY, 400))
    since_s = np.cumsum(time_s)
    first, later = since_s < 0.01, (since_s > 0.2) & (since_s < 0.5)
    assert power_w[first].max() > 850.0 and power_w[later].mean() == pytest.approx(725.0, rel=0.04)
    assert time_s[later].mean() > 1.15 * time_s[first].min()


def test_a_light_kernel_after_heavy_ones_is_slower_and_draws_less_until_the_clock_is_back():
    device = h200()
    alone_s, alone_w = executions(device, (kernel("gemm:2048"), 4000))
    time_s, power_w = executions(device, (HEAVY, 100), (kernel("gemm:2048"), 800))
    since_s = np.cumsum(time_s[100:])
    at_once = since_s < 0.01
    early = np.cumsum(alone_s) < 0.01
    assert time_s[100:][at_once].mean() > 1.04 * alone_s[early][5:].mean()
    assert power_w[100:][at_once][60:].mean() < 0.93 * alone_w[early][60:].mean()


def test_a_light_kernel_from_rest_runs_as_without_a_regulator():
    with_it, without = (executions(h200(regulated=regulated), (LIGHT, 400)) for regulated in (True, False))
    assert with_it[0] == pytest.approx(without[0], rel=1e-9)
    assert with_it[1] == pytest.approx(without[1], rel=2e-3)  # it warms up meanwhile


def test_rest_frees_the_clock():
    instrument = h200(3).instrument()
    with (
        instrument.prepare(Burst(((HEAVY, 200), (LIGHT, 400)))) as heavy,
        instrument.prepare(Burst(((LIGHT, 400),))) as light,
    ):
        clocks = [ready.run(0.3).counted_mhz for ready in (light, heavy, light)]
    assert all(each is not None for each in clocks)
    alone, after, again = (float(np.mean(each[-400:][:100])) for each in clocks if each is not None)
    assert alone > 1800 and again == pytest.approx(alone, rel=0.01) and after < 0.9 * alone


def test_clocks_of_bursts_are_those_of_the_regulator():
    instrument = h200(4).instrument()
    with instrument.prepare(Burst(((HEAVY, 300),))) as ready:
        run = ready.run(0.2)
    assert run.counted_mhz is not None
    assert (
        run.counted_mhz[0] > 1.1 * run.counted_mhz[-100:].mean()
    )  # products skip cycles: fewer are counted than the clock has


def test_bursts_of_presets_run_as_in_steady_state():
    """Products from rest draw more on `sim:h200` than they do on cards, so sensors would be identified worse than there."""
    assert not any((regulator := find_preset(name).regulator) and regulator.bursts for name in preset_names())
