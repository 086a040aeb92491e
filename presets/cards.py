"""What the datasheets say of each card, and what is assumed of it: everything that no fit gives."""

from __future__ import annotations

from dataclasses import dataclass

from wastenot.devices.simulated.hardware import (
    CounterModel,
    GaugeModel,
    Noise,
    SensorModels,
    Switching,
    Thermal,
)

GEMM_EFFICIENCY = 0.85  # of the dense tensor peak, with fp32 sums: large products in vendors' libraries
ATTENTION_EFFICIENCY = (0.55, 0.45)  # the same of fused attention, forward and backward (FlashAttention papers)
MEMORY_EFFICIENCY = 0.90  # of the datasheet's bandwidth: long streams
GEMM_TILE = 128  # rows and columns of the output that a multiprocessor holds at once: usual in vendors' libraries
PLAIN_EFFICIENCY = 0.50  # of the fp32 peak: arithmetic that is not fused multiply-add


@dataclass(frozen=True, slots=True)
class Card:
    """A card by its datasheet.

    Attributes:
        name: of the preset.
        model: as the vendor calls it.
        tensor_tflops: dense, 16-bit with fp32 sums, at ``rated_mhz``.
        fp32_tflops: at ``rated_mhz``.
        base_mhz: lowest core clock that the vendor promises under load.
        rated_mhz: the vendor's boost clock.
        bandwidth_gbytes_per_s: of device memory.
        limits_w: least and greatest power limit.
        idle_w: with nothing running.
        multiprocessors: of the GPU.
        basis: what its preset rests on, in a few words.
    """

    name: str
    model: str
    tensor_tflops: float
    fp32_tflops: float
    base_mhz: float
    rated_mhz: float
    bandwidth_gbytes_per_s: float
    limits_w: tuple[float, float]
    idle_w: float
    multiprocessors: int
    basis: str

    @property
    def gemm_square(self) -> float:
        """Edge of the square of outputs in flight: a tile of 128 × 128 in every multiprocessor."""
        return float(round(GEMM_TILE * self.multiprocessors**0.5))

    @property
    def sustained_mhz(self) -> float:
        """Clock at which a large GEMM is taken to need the whole power limit: midway from base to boost clock."""
        return (self.base_mhz + self.rated_mhz) / 2


# Sources: the datasheet lines of provenance.toml.
RTX_3080_TI = Card(
    "rtx-3080-ti", "NVIDIA GeForce RTX 3080 Ti", 68.2, 34.1, 1365, 1665, 912, (100, 350), 22, 80,
    "fitted to 43 public fp32 kernels; tensor cores and switching assumed",
)  # fmt: skip
RTX_A4000 = Card(
    "rtx-a4000", "NVIDIA RTX A4000", 76.7, 19.2, 735, 1560, 448, (100, 140), 15, 48,
    "constants assumed, except the power of one public fp32 kernel",
)  # fmt: skip
V100 = Card(
    "v100", "NVIDIA Tesla V100 (PCIe)", 112, 14, 1245, 1380, 900, (100, 250), 33, 80,
    "fitted to 29 public fp32 kernels; tensor cores and switching assumed",
)  # fmt: skip
H200 = Card(
    "h200", "NVIDIA H200", 989.5, 67, 1500, 1830, 4800, (200, 700), 79, 132,
    "power and speed fitted to measurements from 1,350 MHz up, assumed below and at lower memory clocks",
)  # fmt: skip


def thermal(limit_w: float, *, reference_c: float, limit_c: float) -> Thermal:
    """A cooler that brings the card to 75 °C at its power limit."""
    return Thermal(
        ambient_c=28.0,
        resistance_c_per_w=round(47.0 / limit_w, 4),
        time_constant_s=40.0,
        leakage_per_c=0.012,
        reference_c=reference_c,
        limit_c=limit_c,
    )


def switching(lowest_mhz: float, highest_mhz: float, *, core_s: float, memory_s: float) -> Switching:
    """Latency that is the same for all core clocks, but for the highest, which is slower to reach."""
    return Switching(core_s=((lowest_mhz, core_s), (highest_mhz, 1.5 * core_s)), memory_s=memory_s, jitter=0.3)


NOISE = Noise(run_time=0.002, run_power=0.004)


def sensors(*, counter_s: float, counter_read_s: float, gauge_s: float, window_s: float, clock_s: float) -> SensorModels:
    """An energy counter, a power gauge and clock samples as NVML gives them."""
    return SensorModels(
        energy=CounterModel(period_s=counter_s, read_s=counter_read_s, noise_w=2.5),
        power=GaugeModel(period_s=gauge_s, window_s=window_s, read_s=4e-6, noise_w=2.5),
        clock_period_s=clock_s,
        clock_read_s=1e-6,
    )
