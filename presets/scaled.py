"""Cards of which no kernels were fitted: the H200's fitted kernels, scaled by what datasheets say of both cards.

Work that multiprocessors do goes with their number, their rate per clock and the clock; traffic goes with the memory's
bandwidth. Energies are fitted where there are measurements, or follow from where a large product needs the whole power
limit. That everything else is as on an H200 is assumed; :mod:`presets.judge_scaled` sets the result beside measurements that
shaped none of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from presets.cards import H200, Card, switching
from presets.h200 import ASSUMED_BELOW_MHZ
from wastenot.devices.simulated import model
from wastenot.devices.simulated.demands import analytical_parameters
from wastenot.devices.simulated.dynamics import Dynamics
from wastenot.devices.simulated.kinds import traits_for
from wastenot.devices.simulated.model import DeviceParameters
from wastenot.devices.simulated.preset import ClockTable, OpTraits, Preset, ProfileCeilings
from wastenot.workloads.kernel import KernelSpec

_MATRIX = ("gemm", "attention")
_LARGE_GEMM = 8192
H200_REFERENCE_MHZ = 1980.0


@dataclass(frozen=True, slots=True)
class Sister:
    """What is known of a card beside its datasheet.

    Attributes:
        card: its datasheet.
        core_mhz: lowest and highest core clock, and the step.
        memory_mhz: memory clocks, ascending.
        awake_w: the board and its memory at the highest memory clock, without a kernel.
        switch_core_s: latency of core clocks.
        switch_memory_s: latency of the memory clock; 0 where there is one only.
        light: energy of clocks and traffic inside the chip over an H200's.
        arithmetic: energy of a FLOP over an H200's; ``None`` for such that a large product needs the whole power limit at
            ``card.sustained_mhz``, that of clocks and traffic likewise.
        byte: energy of a byte of device memory over an H200's.
        voltage: knee in MHz and slope in 1/GHz of the voltage; ``None`` for the H200's, its clocks in proportion.
        assumed_below_mhz: core clock below which no kernel of it was seen; ``None`` where none was seen at all.
        profiles: what its workload power profiles are taken to be; ``None`` where it has none.
    """

    card: Card
    core_mhz: tuple[float, float, float]
    memory_mhz: tuple[float, ...]
    awake_w: float
    switch_core_s: float
    switch_memory_s: float
    light: float = 1.0
    arithmetic: float | None = None
    byte: float = 1.0
    voltage: tuple[float, float] | None = None
    assumed_below_mhz: float | None = None
    profiles: dict[str, ProfileCeilings] | None = None


# The GPU of an H200 with slower memory: clocks and idle power read from cards. Light and byte are fitted to the powers of 66
# kernels of one card (presets.judge_scaled.fit_h100).
H100 = Sister(
    Card("h100", "NVIDIA H100 80GB HBM3", 989.5, 67, 1500, 1830, 3350, (200, 700), 74, 132,
         "the H200's kernels with an H100's memory, judged on another H100; below 1,350 MHz assumed"),
    (345.0, 1980.0, 15.0), (1593.0, 2619.0), 100.0, 0.015, 1.0, light=1.35, arithmetic=1.0, byte=1.36,
    assumed_below_mhz=ASSUMED_BELOW_MHZ,
)  # fmt: skip
# Energies, knee and slope are fitted to forward's power by clock in a public profile (presets.judge_scaled.fit_a100).
A100 = Sister(
    Card("a100", "NVIDIA A100-SXM4-80GB", 312, 19.5, 1275, 1410, 2039, (100, 400), 60, 108,
         "scaled from the H200 by datasheets, power fitted to a public profile; the rest assumed"),
    (210.0, 1410.0, 15.0), (1593.0,), 85.0, 0.02, 0.0, light=1.43, arithmetic=1.43, voltage=(1050.0, 0.787),
)  # fmt: skip
B200 = Sister(
    Card("b200", "NVIDIA B200", 2250, 75, 1500, 1856, 8000, (200, 1000), 140, 148,
         "assumed: scaled from the H200 by datasheets, never compared with a card"),
    (120.0, 1965.0, 15.0), (3996.0,), 190.0, 0.02, 0.0,
    profiles={
        "max-q": ProfileCeilings(power_limit_w=850.0),
        "llm-inference": ProfileCeilings(core_mhz=1500.0),
        "llm-training": ProfileCeilings(core_mhz=1650.0, power_limit_w=900.0),
    },
)  # fmt: skip


def scaled_preset(h200: Preset, sister: Sister, provenance: dict[str, str]) -> Preset:
    """The H200's preset with another card's units, clocks, memory, voltage and power limit."""
    card = sister.card
    low_mhz, high_mhz, step_mhz = sister.core_mhz
    was = h200.parameters
    clocks, ratios = _voltage(was, sister)
    states = len(sister.memory_mhz)
    parameters = replace(
        was,
        reference_core_mhz=high_mhz,
        reference_memory_mhz=sister.memory_mhz[-1],
        memory_states_mhz=sister.memory_mhz,
        bandwidth_factor=(1.0,) * states,
        byte_energy_factor=(1.0,) * states,
        core_floor_mhz=min(was.core_floor_mhz, low_mhz),
        voltage_clocks_mhz=clocks,
        voltage_ratio=ratios,
        base_w=tuple(round(sister.awake_w * each / sister.memory_mhz[-1], 1) for each in sister.memory_mhz),
        leakage_w=0.01 * card.limits_w[1],
        power_limit_w=float(card.limits_w[1]),
    )
    preset = h200.model_copy(
        update={
            "name": card.name,
            "model": card.model,
            "basis": card.basis,
            "provenance": provenance,
            "clocks": ClockTable(
                memory_mhz=sister.memory_mhz, core_from_mhz=low_mhz, core_to_mhz=high_mhz, core_step_mhz=step_mhz,
                boost_mhz=high_mhz, assumed_below_mhz=sister.assumed_below_mhz,
            ),
            "power_limits_w": (float(card.limits_w[0]), float(card.limits_w[1])),
            "idle_w": float(card.idle_w),
            "parameters": parameters,
            "thermal": h200.thermal.model_copy(
                update={"resistance_c_per_w": round(h200.thermal.resistance_c_per_w * 700.0 / card.limits_w[1], 4)}
            ),
            "dynamics": _dynamics(h200.dynamics, card.multiprocessors),
            "profiles": sister.profiles,
            "switching": switching(low_mhz, high_mhz, core_s=sister.switch_core_s, memory_s=sister.switch_memory_s),
        }
    )  # fmt: skip

    def with_energies(light: float, arithmetic: float) -> Preset:
        ops = {name: _scaled(name, each, sister, light, arithmetic) for name, each in h200.ops.items()}
        return preset.model_copy(update={"ops": ops})

    if sister.arithmetic is not None:
        return with_energies(sister.light, sister.arithmetic)
    energy = brentq(lambda one: _product_w(with_energies(one, one), card) - card.limits_w[1], 0.05, 20.0)
    return with_energies(float(energy), float(energy))


def _dynamics(was: Dynamics, multiprocessors: int) -> Dynamics:
    assert was.cycle_clock is not None
    return was.model_copy(update={"cycle_clock": was.cycle_clock.model_copy(update={"multiprocessors": multiprocessors})})


def _voltage(was: DeviceParameters, sister: Sister) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Clocks and the voltage there over the lowest."""
    low_mhz, high_mhz, _ = sister.core_mhz
    if sister.voltage is None:
        clock = high_mhz / was.reference_core_mhz
        return (low_mhz, *(float(round(clock * each)) for each in was.voltage_clocks_mhz[1:])), was.voltage_ratio
    knee_mhz, slope = sister.voltage
    clocks = (low_mhz, knee_mhz, (knee_mhz + high_mhz) / 2, high_mhz)
    return clocks, tuple(1.0 + max(each - knee_mhz, 0.0) / 1000 * slope for each in clocks)


def _scaled(name: str, traits: OpTraits, sister: Sister, light: float, arithmetic: float) -> OpTraits:
    """Traits of an operation on another card, with energies over an H200's."""
    card = sister.card
    clock = sister.core_mhz[1] / H200_REFERENCE_MHZ
    units = card.multiprocessors / H200.multiprocessors
    peak = "tensor_tflops" if name.startswith(_MATRIX) else "fp32_tflops"
    rate = (getattr(card, peak) / card.rated_mhz) / (getattr(H200, peak) / H200.rated_mhz)
    bandwidth = card.bandwidth_gbytes_per_s / H200.bandwidth_gbytes_per_s
    return traits.model_copy(
        update={
            "flops_per_s": traits.flops_per_s * rate * clock,
            "bytes_per_s": traits.bytes_per_s * bandwidth,
            "issue_bytes_per_s": traits.issue_bytes_per_s * units * clock,
            "latency_s": traits.latency_s / clock,
            "turn_s": traits.turn_s / clock,
            "row_s": traits.row_s / (bandwidth if name.startswith("attention_backward") else units * clock),
            "score_s": traits.score_s / (units * clock),
            "tiles_at_once": card.multiprocessors if traits.tiles_at_once else 0,
            "clock_w": traits.clock_w * light * units * clock,
            "flop_j": traits.flop_j * arithmetic,
            "issue_byte_j": traits.issue_byte_j * light,
            "byte_j": traits.byte_j * sister.byte,
        }
    )


def _product_w(preset: Preset, card: Card) -> float:
    """What a large product would draw at the clock that the power limit is taken to hold it at."""
    n = _LARGE_GEMM
    kernel = KernelSpec(
        "large", "GEMM", "gemm", (1, n, n, n), 2.0 * n**3, 4.0 * n**2, 2.0 * n**2, "", None, 1, element_bytes=2
    )
    demands = analytical_parameters(kernel, traits_for(kernel, preset.ops))
    mhz = np.asarray(card.sustained_mhz)
    memory_mhz = preset.parameters.memory_states_mhz[-1]
    time_s = model.time_s(preset.parameters, demands, mhz, memory_mhz)
    return float(np.squeeze(model.demanded_power_w(preset.parameters, demands, mhz, memory_mhz, time_s)))
