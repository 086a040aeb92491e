"""Compute- or memory-bound, by FinGraV's rule: the kernel's op-to-byte ratio against the machine's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wastenot.core.errors import BadInputError
from wastenot.core.suggest import suggestion
from wastenot.workloads.kernel import DTYPE_BYTES, KernelSpec

Bound = Literal["compute", "memory"]

# Where a GPU has no arithmetic of a data type, programs convert on loading and compute in the next that it has.
_COMPUTED_AS = {"fp8": "bf16", "bf16": "fp32", "fp16": "fp32", "tf32": "fp32"}


@dataclass(frozen=True, slots=True)
class Roofline:
    """The two peaks of a machine at one data type: arithmetic in FLOP/s, and device memory."""

    device: str
    dtype: str
    peak_flops: float
    peak_bytes_per_s: float
    source: str

    @property
    def flops_per_byte(self) -> float:
        """The machine's op-to-byte ratio."""
        return self.peak_flops / self.peak_bytes_per_s

    def bound(self, kernel: KernelSpec) -> Bound:
        """Compute-bound if the kernel's op-to-byte ratio is larger than the machine's, else memory-bound.

        Source: FinGraV (Singhania et al.), the section on the kernels profiled.
        """
        return "compute" if kernel.intensity > self.flops_per_byte else "memory"


@dataclass(frozen=True, slots=True)
class GpuPeaks:
    """Peaks of a GPU at its boost clock, without sparsity.

    Attributes:
        tflops: 10¹² FLOP/s by data type; 16-bit and narrower products are summed in fp32.
        gbytes_per_s: 10⁹ bytes per second of device memory.
        source: the vendor's document; where it gives clocks and units only, how the number follows from them.
    """

    tflops: dict[str, float]
    gbytes_per_s: float
    source: str


GPUS: dict[str, GpuPeaks] = {
    # 80 SMs at 1,665 MHz: × 128 lanes × 2; tensor × 4 × 128 FMA × 2, halved by GeForce where it sums in fp32.
    "rtx-3080-ti": GpuPeaks(
        {"fp32": 34.1, "tf32": 34.1, "fp16": 68.2, "bf16": 68.2},
        912.0,
        "NVIDIA GA102 whitepaper: 80 SMs at 1,665 MHz, tensor cores at half rate with fp32 sums; 912 GB/s",
    ),
    # 48 SMs at 1,560 MHz; the datasheet's 153.4 tensor TFLOP/s are with sparsity. RTX A cards sum in fp32 at full rate.
    "rtx-a4000": GpuPeaks(
        {"fp32": 19.2, "tf32": 38.3, "fp16": 76.7, "bf16": 76.7},
        448.0,
        "NVIDIA RTX A4000 datasheet: 19.2 and 153.4 (sparse) TFLOP/s, 448 GB/s",
    ),
    "v100": GpuPeaks(
        {"fp32": 15.7, "fp16": 125.0}, 900.0, "NVIDIA V100 datasheet (SXM2): 15.7 and 125 tensor TFLOP/s, 900 GB/s"
    ),
    # The datasheet's tensor numbers are with sparsity, twice these.
    "h200": GpuPeaks(
        {"fp32": 67.0, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8": 1979.0},
        4800.0,
        "NVIDIA H200 datasheet (SXM): 67 TFLOP/s, tensor 989, 1,979 and 3,958 (sparse), 4.8 TB/s",
    ),
    "h100": GpuPeaks(
        {"fp32": 67.0, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8": 1979.0},
        3350.0,
        "NVIDIA H100 datasheet (SXM): as the H200, 3.35 TB/s",
    ),
    "a100": GpuPeaks(
        {"fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0},
        2039.0,
        "NVIDIA A100 80GB datasheet (SXM): 19.5 and 312 tensor TFLOP/s, 2,039 GB/s",
    ),
    "b200": GpuPeaks(
        {"fp32": 75.0, "tf32": 1125.0, "fp16": 2250.0, "bf16": 2250.0, "fp8": 4500.0},
        8000.0,
        "NVIDIA HGX B200 datasheet, one of eight: tensor 2,250 and 4,500 without sparsity, 8 TB/s",
    ),
    # 2,048 lanes at 1,216 MHz × 2.
    "gtx-980": GpuPeaks({"fp32": 4.98}, 224.0, "NVIDIA GTX 980 whitepaper: 2,048 cores at 1,216 MHz, 224 GB/s"),
    "mi300x": GpuPeaks(
        {"fp32": 163.4, "tf32": 653.7, "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9},
        5300.0,
        "AMD Instinct MI300X data sheet: without sparsity; 5.3 TB/s",
    ),
}


def find_roofline(device: str, dtype: str) -> Roofline:
    """The roofline of a GPU.

    Args:
        device: ``h200``, or ``sim:h200`` as the simulated one is called.
        dtype: of activations and weights; what the GPU has no arithmetic for it computes in the next wider type.

    Raises:
        BadInputError: the GPU or the data type is not known; says which are, and the nearest.
    """
    name = device.removeprefix("sim:")
    if name not in GPUS:
        raise BadInputError(f"`device` '{device}': its peaks are not known; {suggestion(name, GPUS)}")
    if dtype not in DTYPE_BYTES:
        raise BadInputError(f"`dtype` '{dtype}': {suggestion(dtype, DTYPE_BYTES)}")
    peaks = GPUS[name]
    while dtype not in peaks.tflops:
        dtype = _COMPUTED_AS[dtype]
    return Roofline(name, dtype, peaks.tflops[dtype] * 1e12, peaks.gbytes_per_s * 1e9, peaks.source)
