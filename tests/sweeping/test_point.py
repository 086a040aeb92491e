"""Measured energy against the exact truth of simulated GPUs."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from testbed.binomial import least_hits
from testbed.toy_gpu import kernel_of, preset_of, quiet, toy
from wastenot.core.errors import DeviceError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import simulated_device
from wastenot.devices.protocol import ClockReading
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.hardware import Switching
from wastenot.devices.simulated.preset import SensorModels
from wastenot.sweeping.point import PointOptions, measure_point, warm_up

FAST = ("toy", "h200")
PRESETS = [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in preset_names() if name not in FAST)]
SEEDS = 25  # for each of four kernels: a method that holds with 80 % misses the bound on all of them 19 times in 20


def gain(preset):
    sensor = preset.sensors.energy or preset.sensors.power
    return sensor.gain


@pytest.mark.parametrize("name", PRESETS)
def test_energy_is_that_of_a_noiseless_sensor_and_the_error_is_right(name):
    """Over many seeds: mean within 0.5 % for kernels of every length, and the stated 95 % intervals hold the truth."""
    preset = quiet(preset_of(name))
    memory = preset.clocks.memory_mhz[-1]
    covered = []
    for seconds in (5e-6, 1e-4, 3e-3, 5e-2):
        task = kernel_of(seconds, preset)
        errors, held = [], []
        for seed in range(SEEDS):
            device = simulated_device(preset, "sim:x", seed=seed)
            warm_up(device, [task])
            setting = AUTO if seed % 2 else Setting(preset.clocks.core_mhz[len(preset.clocks.core_mhz) // 2], memory)
            pass_to_steady = PointOptions(warm_up_s=120.0, window_s=5.0)
            found = measure_point(device, task, setting, pass_to_steady)
            truth = device.truth(task, setting, device.engine.temperature_c)
            should = truth.time_s * truth.power_w * gain(preset)
            errors.append(found.energy_j / should - 1)
            held.append(abs(found.energy_j - should) <= 1.96 * found.energy_se_j)
            assert found.time_s == pytest.approx(truth.time_s, rel=2e-3)
        assert abs(np.mean(errors)) <= 0.005
        assert sum(held) >= least_hits(len(held))
        covered += held
    assert sum(covered) >= least_hits(len(covered))


def test_a_gauge_serves_where_there_is_no_counter():
    preset = quiet(toy(sensors=SensorModels(power=toy().sensors.power)))
    task = kernel_of(1e-3, preset)
    device = simulated_device(preset, "sim:x", seed=5)
    found = measure_point(device, task, AUTO, PointOptions(60.0, 5.0))
    truth = device.truth(task, AUTO, device.engine.temperature_c)
    assert found.energy_j == pytest.approx(truth.time_s * truth.power_w * 0.97, rel=0.01)


def test_no_sensor_at_all_is_an_error():
    device = simulated_device(toy(sensors=SensorModels()), "sim:x", seed=1)
    with pytest.raises(DeviceError, match="neither energy nor power"):
        measure_point(device, kernel_of(1e-3, toy()), AUTO)


def test_it_stops_early_where_the_error_asked_for_is_reached(device):
    task = kernel_of(1e-3, toy())
    loose = measure_point(device, task, AUTO, PointOptions(1.0, 30.0, relative_error=0.01))
    tight = measure_point(device, task, AUTO, PointOptions(1.0, 10.0, relative_error=1e-9))
    assert loose.stopped.startswith("relative error") and loose.window_s < 20
    assert tight.stopped.startswith("time limit") and 9 <= tight.window_s <= 12


def test_clocks_that_do_not_arrive_and_limits_are_flagged(device):
    task = kernel_of(1e-3, toy())
    assert "memory clock not reached" in measure_point(device, task, Setting(1470, 405)).flags
    assert "core clock not reached" in measure_point(device, task, Setting(2100, 9501)).flags
    limited = measure_point(device, task, Setting(power_limit_w=100.0))
    assert "throttled" in limited.flags and limited.throttled_share == pytest.approx(1.0, abs=0.05)
    assert limited.energy_j / limited.time_s == pytest.approx(100.0 * 0.97, rel=0.02)


def throttled_once(device, seconds):
    """The device, whose clock falls for a while in the tenth lap of a window."""
    read, laps = device.sensors.clocks, []

    def clocks():
        laps.append(1)
        if len(laps) == 10:
            device.clocks.request(Setting(900, 9501))
            device.time.sleep(seconds)
            device.clocks.request(Setting(1470, 9501))
            device.time.sleep(0.11)  # the driver's reading is this old
        return read()

    device.sensors.clocks = clocks
    return device


def test_a_throttle_of_20_ms_is_seen_by_counting_cycles():
    preset = quiet(toy(switching=Switching()))
    task, options = kernel_of(1e-3, preset), PointOptions(120.0, 5.0)
    seconds = 0.02
    steady = measure_point(simulated_device(preset, "sim:x", seed=3), task, Setting(1470, 9501), options)
    assert steady.effective_core_mhz == 1470.0 and not steady.flags
    found = measure_point(
        throttled_once(simulated_device(preset, "sim:x", seed=3), seconds), task, Setting(1470, 9501), options
    )
    lost = 570.0 * seconds / found.window_s
    assert found.effective_core_mhz == pytest.approx(1470.0 - lost, abs=0.1 * lost)
    assert found.flags == ("core clock dropped for a moment",)


def test_a_clock_that_is_not_counted_is_the_drivers(device):
    """As where PyTorch cannot count; the laps of one run then have no clock."""
    task = kernel_of(1e-3, toy())
    start = device.launcher.start

    @contextmanager
    def without(task):
        with start(task) as run:
            yield run
        run._laps = (*run._laps[:-1], replace(run._laps[-1], core_mhz=None, lowest_core_mhz=None))

    device.launcher.start = without
    device.sensors.clocks = lambda: ClockReading(1234.0, 9501.0)
    found = measure_point(device, task, Setting(1470, 9501))
    assert found.effective_core_mhz == 1234.0 and "core clock not reached" in found.flags


def test_a_kernel_longer_than_the_window_is_waited_for(device):
    found = measure_point(device, kernel_of(40.0, toy()), AUTO, PointOptions(1.0, 2.0))
    assert found.calls == 1 and found.time_s == pytest.approx(40.0, rel=0.1)
    with pytest.raises(DeviceError, match="not one complete call"):
        measure_point(device, kernel_of(2000.0, toy()), AUTO, PointOptions(1.0, 2.0))


def test_warming_up_reaches_a_steady_temperature(device):
    task = kernel_of(1e-3, toy())
    warm_up(device, [task])
    before = device.engine.temperature_c
    measure_point(device, task, AUTO, PointOptions(20.0, 5.0))
    assert device.engine.temperature_c == pytest.approx(before, abs=1.5)
