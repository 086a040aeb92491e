"""Measured energy on the simulator compared with its exact truth: bias, and how often stated 95 % intervals contain it."""

from __future__ import annotations

import numpy as np

from benchmarks.verdict import Verdict
from testbed.toy_gpu import kernel_of, preset_of, quiet
from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.preset import preset_names
from wastenot.setting import AUTO, Setting
from wastenot.sweeping.point import PointOptions, measure_point

SEEDS = 60
KERNELS_S = (5e-6, 1e-4, 3e-3, 5e-2)


def main(verdict: Verdict) -> None:
    for name in preset_names():
        preset = quiet(preset_of(name))
        sensor = preset.sensors.energy
        assert sensor is not None
        middle = Setting(preset.clocks.core_mhz[len(preset.clocks.core_mhz) // 2], preset.clocks.memory_mhz[-1])
        errors, covered = [], []
        for seconds in KERNELS_S:
            task = kernel_of(seconds, preset)
            for seed in range(SEEDS):
                device = simulated_device(preset, "sim:x", seed=seed)
                setting = AUTO if seed % 2 else middle
                measured = measure_point(device, task, setting, PointOptions(warm_up_s=120.0, window_s=5.0))
                truth = device.truth(task, setting, device.engine.temperature_c)
                expected_j = truth.time_s * truth.power_w * sensor.gain
                errors.append(measured.energy_j / expected_j - 1)
                covered.append(abs(measured.energy_j - expected_j) <= 1.96 * measured.energy_se_j)
        verdict.at_most(f"{name}, kernels of 5 µs to 50 ms: mean error of energy", abs(float(np.mean(errors))), 0.005)
        verdict.at_least(f"{name}: stated 95 % intervals that contain the truth", float(np.mean(covered)), 0.90)
        verdict.at_most(f"{name}: stated 95 % intervals that contain the truth", float(np.mean(covered)), 0.98)
