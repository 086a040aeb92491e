"""Effective clocks by counting cycles on simulated GPUs: throttles of 20 ms are seen, and nothing else is taken for one."""

from __future__ import annotations

import numpy as np

from benchmarks.verdict import Verdict
from testbed.toy_gpu import kernel_of, preset_of, quiet
from wastenot.devices.open import simulated_device
from wastenot.devices.protocol import ClockReading
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.hardware import Switching
from wastenot.devices.simulated.preset import preset_names
from wastenot.setting import AUTO, Setting
from wastenot.sweeping.point import PointOptions, measure_point

RUNS = 84  # of each GPU, three quarters of them throttled: 60 of 60 show at least 95 %, with 95 % confidence
THROTTLE_S = 0.02
DEPTH = 0.08  # by how much a throttle lowers the clock at least
OPTIONS = PointOptions(warm_up_s=2.0, window_s=2.0)
DROPPED = "core clock dropped for a moment"


def throttled_once(device: SimulatedDevice, setting: Setting, low_mhz: float, rng: np.random.Generator) -> None:
    """Let the clock fall for 20 ms at some moment of the next window."""
    read, lap, delay_s = device.sensors.clocks, iter(range(10_000)), float(rng.uniform(0.0, 0.05))
    when = int(rng.integers(2, 10))  # a window has 15 laps or more

    def clocks() -> ClockReading:
        if next(lap) == when:
            device.time.sleep(delay_s)
            device.clocks.request(Setting(low_mhz, setting.memory_mhz))
            device.time.sleep(THROTTLE_S)
            device.clocks.request(setting)
            device.time.sleep(0.1)  # for as long the driver's reading may be old
        return read()

    device.sensors.clocks = clocks  # type: ignore[method-assign]


def main(verdict: Verdict) -> None:
    rng = np.random.default_rng(5)
    for name in preset_names():
        preset = quiet(preset_of(name)).model_copy(update={"switching": Switching()})
        memory, cores = preset.clocks.memory_mhz[-1], preset.clocks.core_mhz
        seen, lost_errors, alarms, errors = 0, [], 0, []
        for seed in range(RUNS):
            core = cores[int(rng.integers(len(cores) // 2, len(cores)))]
            low = max(each for each in cores if each <= (1.0 - DEPTH) * core)
            setting = AUTO if seed % 4 == 0 else Setting(core, memory)
            device = simulated_device(preset, "sim:x", seed=seed)
            task = kernel_of(float(np.exp(rng.uniform(np.log(1e-5), np.log(5e-3)))), preset)
            still = measure_point(device, task, setting, OPTIONS)
            truth = device.truth(task, setting, device.engine.temperature_c)
            assert still.effective_core_mhz is not None
            errors.append(still.effective_core_mhz / truth.core_mhz - 1.0)
            alarms += DROPPED in still.flags
            if setting != AUTO and truth.core_mhz == core:
                throttled_once(device, setting, low, rng)
                found = measure_point(device, task, setting, OPTIONS)
                assert found.effective_core_mhz is not None
                lost = (core - low) * THROTTLE_S / found.window_s
                lost_errors.append((core - found.effective_core_mhz) / lost - 1.0)
                seen += DROPPED in found.flags
        verdict.at_most(f"{name}: error of effective clocks, largest", float(np.max(np.abs(errors))), 0.005)
        verdict.at_most(f"{name}: steady runs in which a throttle was seen, of {RUNS}", alarms, 0)
        verdict.at_least(f"{name}: throttles of 20 ms by {DEPTH:.0%} or more that were seen", seen / len(lost_errors), 1.0)
        verdict.at_most(f"{name}: error of the cycles that they cost, largest", float(np.max(np.abs(lost_errors))), 0.1)
