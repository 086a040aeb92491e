"""Costs of kernels nobody has measured, on GPUs nobody has seen: draws from the priors that calibration starts from.

Every draw is a kernel on a GPU of its own. Together they say how costs at different clocks go together before anything is
known: what a plausible kernel does at 1,000 MHz if it lost nothing at 1,500 MHz.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.devices.simulated import model
from wastenot.devices.simulated.model import DeviceParameters
from wastenot.kernels.calibration.fit import POWER_MEAN, POWER_SD, power_kernels, time_kernels, time_prior, with_time

_GPUS, _KERNELS_OF_EACH = 48, 40
_VOLTAGES = 9
_KNEE = (0.2, 0.85)  # of the highest core clock, below which the voltage stays
_VOLTAGE_RANGE = (0.15, 0.7)  # by how much the highest voltage exceeds the lowest
_BENDS = (0.8, 1.8)  # exponent of the rise above the knee
_BASE, _BASE_SD = 0.3, 0.5  # power that no clock changes, in the highest memory state: median, and sd of the logarithm
_LEAKAGE, _LEAKAGE_SD = 0.03, 1.0
_BYTE_ENERGY_SD = 0.3


@lru_cache(maxsize=8)
def draw_log_costs(core_mhz: tuple[float, ...], memory_mhz: tuple[float, ...]) -> tuple[FloatArray, FloatArray]:
    """Logarithms of time and energy of drawn kernels, in units of their own; always the same draws for the same clocks.

    Args:
        core_mhz: core clocks in effect.
        memory_mhz: memory clocks in effect.

    Returns:
        Each of shape (draws, points).
    """
    core, memory = np.array(core_mhz), np.array(memory_mhz)
    states = np.unique(memory)
    prior = time_prior(len(states))
    random = np.random.default_rng(0)
    times, energies = [], []
    for _ in range(_GPUS):
        device = _draw_gpu(core, states, random)
        device_logs = prior.device_mean + prior.device_sd * random.standard_normal(len(prior.device_mean))
        device = with_time(device, device_logs, float(core.min()))
        scatter = random.standard_normal((_KERNELS_OF_EACH, len(prior.kernel_mean)))
        kernels = time_kernels(prior.kernel_mean + prior.kernel_sd * scatter, np.ones(_KERNELS_OF_EACH))
        time = model.time_s(device, kernels, core, memory)
        scatter = random.standard_normal((_KERNELS_OF_EACH, len(POWER_MEAN)))
        kernels = power_kernels(kernels, POWER_MEAN + POWER_SD * scatter, 1.0, time.min(axis=1))
        power = model.power_w(device, kernels, core, memory, time)
        times.append(np.log(time))
        energies.append(np.log(time * power))
    return np.concatenate(times), np.concatenate(energies)


def _draw_gpu(core_mhz: FloatArray, states_mhz: FloatArray, random: np.random.Generator) -> DeviceParameters:
    """A GPU whose power is drawn, in units of a typical kernel's; what times depend on is left to the caller."""
    highest = float(core_mhz.max())
    clocks = np.unique(np.linspace(core_mhz.min(), highest, _VOLTAGES))
    knee, rise = random.uniform(*_KNEE), random.uniform(*_VOLTAGE_RANGE)
    above = np.clip((clocks / highest - knee) / (1.0 - knee), 0.0, None) ** random.uniform(*_BENDS)
    base = _BASE * np.exp(_BASE_SD * random.standard_normal()) * (states_mhz / states_mhz[-1]) ** random.uniform()
    byte_energy = np.append(np.exp(_BYTE_ENERGY_SD * random.standard_normal(len(states_mhz) - 1)), 1.0)
    voltage = 1.0 + rise * above
    return DeviceParameters(
        reference_core_mhz=highest,
        reference_memory_mhz=float(states_mhz[-1]),
        memory_states_mhz=tuple(states_mhz.tolist()),
        bandwidth_factor=(1.0,) * len(states_mhz),
        core_bandwidth=0.0,
        core_bandwidth_sharpness=1.0,
        overlap_exponent=1.0,
        core_floor_mhz=0.0,
        voltage_clocks_mhz=tuple(clocks.tolist()),
        voltage_ratio=tuple((voltage / voltage[0]).tolist()),
        base_w=tuple(base.tolist()),
        leakage_w=float(_LEAKAGE * np.exp(_LEAKAGE_SD * random.standard_normal())),
        byte_energy_factor=tuple(byte_energy.tolist()),
    )
