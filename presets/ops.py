"""Traits of analytical operations, from a card's datasheet and what its fitted kernels have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from presets.cards import ATTENTION_EFFICIENCY, GEMM_EFFICIENCY, MEMORY_EFFICIENCY, PLAIN_EFFICIENCY, Card
from wastenot.devices.simulated.demands import reread
from wastenot.devices.simulated.model import DeviceParameters, KernelParameters, core_ratio, voltage
from wastenot.devices.simulated.preset import OpTraits

_CLEARLY = 1.3  # one limit of a kernel is this much longer than the others
_LARGE_GEMM = 4096  # rows, columns and depth of the GEMM that the power limit is said of
_FIXED_S = 2e-6


@dataclass(frozen=True, slots=True)
class Population:
    """What the fitted kernels of a card have in common.

    Attributes:
        clock_w: floor of switching power, median.
        memory_w: device-memory power of a kernel bound by bandwidth, median.
        issue_w: power of moving these bytes inside the chip, at the lowest voltage, median.
        issue_share: core time of such a kernel over its memory time, median.
        work_w: power of the instructions of a kernel bound by the core, the largest tenth; of all where none is.
    """

    clock_w: float
    memory_w: float
    issue_w: float
    issue_share: float
    work_w: float


def population_of(kernels: KernelParameters) -> Population:
    """What fitted kernels, parameters of shape (kernels, 1), have in common."""
    column = {name: np.ravel(getattr(kernels, name)) for name in kernels.__slots__}
    core, memory = column["core_s"], column["memory_s"]
    latency = column["latency_core_s"] + column["latency_memory_s"]
    by_memory = memory > _CLEARLY * np.maximum(core, latency)
    by_core = core > _CLEARLY * np.maximum(memory, latency)
    return Population(
        clock_w=float(np.median(column["clock_w"])),
        memory_w=_median(column["memory_j"] / memory, by_memory),
        issue_w=_median(column["work_j"] / memory, by_memory),
        issue_share=_median(core / memory, by_memory),
        work_w=float(np.quantile((column["work_j"] / np.maximum(core, memory))[by_core if by_core.any() else ...], 0.9)),
    )


def _median(values: NDArray[np.float64], where: NDArray[np.bool_]) -> float:
    return float(np.median(values[where]))


def ops_of(card: Card, device: DeviceParameters, found: Population) -> dict[str, OpTraits]:
    """Traits of GEMMs, attention, and of all else, which memory bounds.

    Args:
        card: its datasheet.
        device: its fitted parameters; rates are stated at the reference core clock.
        found: what its kernels have in common.
    """
    faster = device.reference_core_mhz / card.rated_mhz
    bytes_per_s = MEMORY_EFFICIENCY * card.bandwidth_gbytes_per_s * 1e9
    plain = PLAIN_EFFICIENCY * card.fp32_tflops * 1e12 * faster
    shared = {
        "bytes_per_s": bytes_per_s,
        "issue_bytes_per_s": bytes_per_s / found.issue_share,
        "fixed_s": _FIXED_S,
        "clock_w": found.clock_w,
        "issue_byte_j": found.issue_w / bytes_per_s,
        "byte_j": found.memory_w / bytes_per_s,
    }
    tensor = card.tensor_tflops * 1e12 * faster
    gemm = OpTraits(flops_per_s=GEMM_EFFICIENCY * tensor, flop_j=0.0, square=card.gemm_square, **shared)
    flop_j = _flop_j_at_limit(card, device, gemm)
    forward, backward = (OpTraits(flops_per_s=share * tensor, flop_j=flop_j, **shared) for share in ATTENTION_EFFICIENCY)
    return {
        "default": OpTraits(flops_per_s=plain, flop_j=found.work_w / plain, **shared),
        "gemm": gemm.model_copy(update={"flop_j": flop_j}),
        "attention": forward,
        "attention_backward": backward,
    }


def _flop_j_at_limit(card: Card, device: DeviceParameters, gemm: OpTraits) -> float:
    """Energy of a FLOP with which a large GEMM needs the power limit at the sustained clock."""
    clock = card.sustained_mhz
    squared, x = float(voltage(device, clock)) ** 2, float(core_ratio(device, clock))
    flops_per_s = gemm.flops_per_s * x
    once = flops_per_s * 3 * 2 / (2 * _LARGE_GEMM)  # three matrices of 16-bit numbers
    bytes_per_s = once * reread((1, _LARGE_GEMM, _LARGE_GEMM, _LARGE_GEMM), gemm.square)
    others = device.base_w[-1] + device.leakage_w * (squared**1.5 - 1) + gemm.clock_w * squared * x
    others += bytes_per_s * (gemm.byte_j + gemm.issue_byte_j * squared)
    return (card.limits_w[1] - others) / (flops_per_s * squared)
