"""Sweeps for calibration: made by a simulated GPU without noise, so that the truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import simulated_device
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.preset import read_preset
from wastenot.study.sweep import Kernel, Sweep
from wastenot.workloads.kernel import KernelSpec

TOY = Path(__file__).with_name("toy.toml")


def toy_gpu() -> SimulatedDevice:
    return simulated_device(read_preset(TOY), "sim:toy")


def spec(name: str, op: str, flops: float, moved: float) -> KernelSpec:
    return KernelSpec(name, name, op, (), flops, moved, 0.0, "forward", None, 1)  # type: ignore[arg-type]


KERNELS = tuple(
    [spec(f"stream{n}", "elementwise", 1e8 * n, 4e8 * n) for n in (1, 2, 5)]
    + [spec(f"work{n}", "elementwise", 3e9 * n, 1e8) for n in (1, 2, 4, 8)]
    + [spec(f"gemm{n}", "gemm", 5e9, 1e8 * n) for n in (1, 2, 3, 5)]
)
CORE = (420.0, 840.0, 1200.0, 1290.0, 1380.0, 1485.0, 1590.0, 1695.0, 1800.0, 1890.0, 1950.0)
MEMORY = (810.0, 5001.0, 9501.0)
PAIRS = len(CORE) * len(MEMORY)


def true_sweep(
    device: SimulatedDevice,
    kernels: tuple[KernelSpec, ...] = KERNELS,
    core: tuple[float, ...] = CORE,
    memory: tuple[float, ...] = MEMORY,
    *,
    record_effective: bool = True,
) -> Sweep:
    """What a perfect measurement would give, with or without the clocks in effect."""
    settings = [AUTO, *(Setting(c, m) for m in memory for c in core)]
    rows = []
    for index, kernel in enumerate(kernels):
        for setting in settings:
            point = device.truth(Task.of_kernel(kernel), setting)
            requested = (setting.core_mhz or np.nan, setting.memory_mhz or np.nan)
            effect = (point.core_mhz, point.memory_mhz) if record_effective else (np.nan, np.nan)
            rows.append((index, *requested, point.time_s, point.time_s * point.power_w, *effect))
    table = np.array(rows)
    absent = np.full(len(table), np.nan)
    return Sweep(
        kernels=tuple(Kernel(kernel.name, 1) for kernel in kernels),
        kernel_index=table[:, 0].astype(np.int64),
        core_mhz=table[:, 1],
        memory_mhz=table[:, 2],
        power_limit_w=absent,
        time_s=table[:, 3],
        energy_j=table[:, 4],
        time_se_s=absent,
        energy_se_j=absent,
        effective_core_mhz=table[:, 5],
        effective_memory_mhz=table[:, 6],
        calls=absent,
        temperature_c=absent,
        workload="synthetic",
        device="Toy GPU",
        origin="simulated",
    )
