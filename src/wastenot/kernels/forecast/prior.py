"""What is unknown about a GPU whose clocks were never set: ranges with their sources, and draws from them.

A draw is a whole GPU (the parameters of the model in :mod:`wastenot.devices.simulated.model`) and the typical behaviour of
kernels on it. Draws form a Latin hypercube: each number's range is divided into as many equal parts as there are draws, and
each part is used once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.special import ndtri

from wastenot.core.arrays import FloatArray
from wastenot.devices.simulated.model import DeviceParameters
from wastenot.devices.simulated.preset import Preset

Knowledge = Literal["any", "preset"]
"""``any``: the GPU is like some recent GPU; ``preset``: it is about as the preset says."""

KNOWLEDGES: tuple[Knowledge, ...] = get_args(Knowledge)

Group = Literal["voltage", "power", "memory power", "time", "auto"]
GROUPS: tuple[Group, ...] = get_args(Group)

_VOLTAGE_POINTS = 9
_UNLIKE = 0.15  # fraction of the draws beyond each end of a range that has a least and a greatest value


@dataclass(frozen=True, slots=True)
class Range:
    """Prior of one number.

    Attributes:
        group: group of numbers that the same further measurement would determine.
        low: least value.
        high: greatest value.
        logarithmic: whether its logarithm is uniform over the range, otherwise the number itself.
        log_sd: standard deviation of its logarithm around a preset's value.
        source: where the range comes from.
        least: least value of the GPUs quite unlike those that the range comes from, of which as many lie below ``low`` as
            above ``high``; None if there are none.
        greatest: their greatest value.
    """

    group: Group
    low: float
    high: float
    logarithmic: bool
    log_sd: float
    source: str
    least: float | None = None
    greatest: float | None = None

    def quantile(self, probability: FloatArray, centre: float | None = None) -> FloatArray:
        """Values at these probabilities, over the range or around a centre."""
        if centre is not None and centre > 0.0:
            return np.asarray(centre * np.exp(self.log_sd * ndtri(probability)))
        if self.least is None or self.greatest is None:
            places, values = [0.0, 1.0], [self.low, self.high]
        else:
            places, values = [0.0, _UNLIKE, 1.0 - _UNLIKE, 1.0], [self.least, self.low, self.high, self.greatest]
        if self.logarithmic:
            return np.asarray(np.exp(np.interp(probability, places, np.log(values))))
        return np.asarray(np.interp(probability, places, values))


_CARDS = "spans the cards we fitted (RTX 3080 Ti, V100, GTX 980) and published fits, widened"
_FIXED = "fits of 2 of 7 cards (GTX 1080 Ti, RTX 2070 Super) hardly show any: forced states, offsets"
_KERNELS = "spans the kernels fitted on these cards; assumed"

RANGES: dict[str, Range] = {
    # Voltage over the core clock: flat to the knee, then rising by a power of the distance from it.
    "knee": Range("voltage", 0.45, 0.80, False, 0.05, "published knees at 64 to 75 % of the highest clock", 0.3, 0.97),
    "rise": Range("voltage", 0.15, 0.60, False, 0.20, "highest over lowest voltage 1.2 to 1.6 in fits", 0.05, 0.9),
    "voltage_follows": Range("voltage", -0.2, 0.8, False, 0.0, "whether the voltage rises at all, where above 0; " + _FIXED),
    "bend": Range("voltage", 1.0, 2.5, False, 0.10, "linear on V100 and RTX A4000, bent upwards on RTX 3080 Ti", 0.7, 4.0),
    # Power, as fractions of the power limit.
    "base": Range("power", 0.06, 0.34, False, 0.15, _CARDS, 0.02, 0.6),
    "leakage": Range("power", 0.002, 0.03, True, 0.5, _CARDS),
    "clock": Range("power", 0.015, 0.08, True, 0.4, _CARDS),
    # Memory.
    "memory_full": Range("memory power", 0.10, 0.38, False, 0.2, "at full bandwidth: 18 % (H200), 24 to 30 %", 0.03, 0.55),
    "memory_idle": Range("memory power", 0.8, 1.0, False, 0.1, "of the least memory power recorded; the rest is traffic"),
    "state_base": Range("memory power", 0.2, 0.8, False, 0.1, "base power that follows its clock: 0.6 to 0.7", 0.0, 0.95),
    "state_byte": Range("memory power", 0.85, 1.15, False, 0.1, "energy per byte in the next lower state: 0.92 to 0.97"),
    "state_time": Range("time", 0.93, 1.10, False, 0.03, "time per byte beyond the clock's in the next lower state: 0.96"),
    # Time.
    "core_bandwidth": Range("time", 0.15, 0.85, False, 0.15, "0.20 (RTX 3080 Ti) to 0.66 (V100)"),
    "sharpness": Range("time", 8.0, 50.0, True, 0.2, "10 to 51 fitted"),
    "overlap": Range("time", 3.0, 20.0, True, 0.15, "11 to 17 fitted; 1, no overlap, fits others (Wang and Chu)", 1.0, 30.0),
    "reached_bandwidth": Range("time", 0.82, 0.97, False, 0.04, "of the datasheet's, if bandwidth-bound; 0.92 on an H200"),
    "reached_flops": Range("time", 0.72, 0.98, False, 0.06, "of the datasheet's, if compute-bound; 0.93 on an H200"),
    "reread": Range("time", 1.0, 4.0, True, 0.3, "times a GEMM reads its bytes with a small cache; 1 on an H200"),
    "core_bound": Range("time", 0.02, 0.98, False, 0.3, "odds of a core bottleneck not shown by FLOPs; " + _KERNELS),
    "latency_bound": Range("time", 0.02, 0.4, False, 0.3, _KERNELS),
    "beside": Range("time", 0.4, 4.0, True, 0.3, "how close the other limits come to the bottleneck; " + _KERNELS),
    "latency_core": Range("time", 0.2, 0.9, False, 0.2, "part of a chain of accesses that the core clock sets; " + _KERNELS),
    "unscaled": Range("time", 0.0, 0.9, False, 0.5, "time that depends on no clock: up to 0.9 in fits of short kernels"),
    "fixed_s": Range("time", 1e-6, 4e-6, True, 0.3, "launch and tail of a call, some microseconds"),
    # What the default clocks cost beyond the same clocks locked: nothing in half of the draws.
    "auto_costs": Range("auto", -1.0, 1.0, False, 0.0, "whether they do, where above 0; no study of two cards exists"),
    "auto_time": Range("auto", 0.0, 0.03, False, 0.0, "1.6 % in the one sweep that shows it (RTX 3080 Ti), doubled"),
    "auto_power": Range("auto", 0.0, 0.08, False, 0.0, "4 % in that sweep, doubled; a clock that swings by 5 % costs 1 %"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GpuDraw:
    """One GPU that could be the one observed.

    Attributes:
        device: its parameters, without a power limit, which each kernel has for itself.
        numbers: the numbers drawn, by their name in :data:`RANGES`.
        seed: seed of the draws for single kernels.
    """

    device: DeviceParameters
    numbers: Mapping[str, float]
    seed: int


@dataclass(frozen=True, slots=True)
class GpuBounds:
    """What the observation says about the GPU as a whole.

    Attributes:
        power_limit_w: power limit in force.
        least_power_w: power of the kernel that draws least.
        least_memory_w: least memory power recorded; ``None`` if none was.
        highest_mhz: core clock when nothing limits it.
    """

    power_limit_w: float
    least_power_w: float
    least_memory_w: float | None
    highest_mhz: float


def draw_gpus(preset: Preset, bounds: GpuBounds, knowledge: Knowledge, draws: int, seed: int) -> Iterator[GpuDraw]:
    """GPUs that could be the one observed.

    Args:
        preset: provides the clocks, and with ``knowledge`` of ``preset`` the centres of everything else.
        bounds: what the observation says.
        knowledge: how far the preset is trusted.
        draws: how many.
        seed: seed of the draws.
    """
    rng = np.random.default_rng([seed, 8])
    centres = _centres(preset) if knowledge == "preset" else {}
    columns = {
        name: prior.quantile((rng.permutation(draws) + rng.uniform(0.02, 0.98, draws)) / draws, centres.get(name))
        for name, prior in RANGES.items()
    }
    for draw in range(draws):
        numbers = {name: float(column[draw]) for name, column in columns.items()}
        device = _device(preset, bounds, numbers, knowledge)
        yield GpuDraw(device, numbers, seed * 1_000_003 + draw)


def _centres(preset: Preset) -> dict[str, float]:
    """A preset's values for the GPU; for what concerns kernels the ranges are used."""
    own, limit = preset.parameters, preset.parameters.power_limit_w or preset.power_limits_w[1]
    centres = {
        "knee": 1.0,  # here a factor on the curve's clocks
        "rise": 1.0,  # here a factor on its rise above 1
        "base": own.base_w[-1] / limit,
        "leakage": own.leakage_w / limit,
        "core_bandwidth": own.core_bandwidth,
        "sharpness": own.core_bandwidth_sharpness,
        "overlap": own.overlap_exponent,
    }
    if preset.ops:
        traits = preset.ops["default"]
        centres["clock"] = traits.clock_w / limit
        centres["memory_full"] = traits.byte_j * traits.bytes_per_s / limit
    return centres


def _device(preset: Preset, bounds: GpuBounds, numbers: dict[str, float], knowledge: Knowledge) -> DeviceParameters:
    own, clocks = preset.parameters, preset.clocks
    highest, lowest = bounds.highest_mhz, clocks.core_from_mhz
    if knowledge == "preset":
        at = tuple(clock * numbers["knee"] for clock in own.voltage_clocks_mhz)
        voltage = tuple(1.0 + (ratio - 1.0) * numbers["rise"] for ratio in own.voltage_ratio)
    else:
        knee = max(numbers["knee"] * highest, lowest * 1.01)
        steps = np.linspace(0.0, 1.0, _VOLTAGE_POINTS)
        at = (min(lowest, 0.5 * knee), *(knee + steps * (highest - knee)).tolist())
        rise = numbers["rise"] if numbers["voltage_follows"] > 0.0 else 0.0
        voltage = (1.0, *(1.0 + rise * steps ** numbers["bend"]).tolist())
    base = numbers["base"] * bounds.power_limit_w
    if bounds.least_memory_w is not None:  # idle memory power is known: only the rest of the board is drawn
        base = bounds.least_memory_w * numbers["memory_idle"] + 0.4 * base
    base = min(base, 0.9 * bounds.least_power_w)
    # The kernel that draws least contains all of base power and leakage, and may run at the highest voltage.
    most_leakage = (0.97 * bounds.least_power_w - base) / max(voltage[-1] ** 3 - 1.0, 1e-6)
    leakage = min(numbers["leakage"] * bounds.power_limit_w, most_leakage)
    states = clocks.memory_mhz
    below = [1.0 - state / states[-1] for state in states]
    far = [min(fraction / 0.4, 1.0) for fraction in below]  # how much of the first lower state's deviation applies
    return DeviceParameters(
        reference_core_mhz=highest,
        reference_memory_mhz=states[-1],
        memory_states_mhz=states,
        bandwidth_factor=tuple(numbers["state_time"] ** fraction for fraction in far),
        core_bandwidth=numbers["core_bandwidth"],
        core_bandwidth_sharpness=numbers["sharpness"],
        overlap_exponent=numbers["overlap"],
        core_floor_mhz=0.95 * lowest,
        voltage_clocks_mhz=at,
        voltage_ratio=voltage,
        base_w=tuple(base * (1.0 - numbers["state_base"] * fraction) for fraction in below),
        leakage_w=leakage,
        byte_energy_factor=tuple(numbers["state_byte"] ** fraction for fraction in far),
        power_limit_w=None,
    )
