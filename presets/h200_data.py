"""What was measured on H200s (data/h200): kernels at auto, and their time and power by clock."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wastenot.devices.simulated.kinds import kinds_of
from wastenot.study.sweep_file import read_sweep
from wastenot.workloads.build import build_workload, run_named
from wastenot.workloads.capturing.workload_file import read_workload
from wastenot.workloads.kernel import KernelSpec

Array = NDArray[np.float64]

DATA = Path(__file__).parents[1] / "data" / "h200"
NATURAL = DATA / "natural"
SWEEPS: tuple[tuple[str, str], ...] = (
    ("gpt3-xl-4", "gpt3-xl"),
    ("llama-8b-training", "llama-8b-batch4-flash"),
    ("llama-8b-prefill", "llama-8b-prefill-flash"),
    ("llama-8b-decode", "llama-8b-decode-flash"),
)
"""Sweeps that the preset is fitted to, each with its workload: the kernels as they are now, each once."""

TENSOR_CLOCK = 0.918
"""Clock counted in cycles over the one that NVML states, while tensor cores work: 1,818 of 1,980 MHz under no limit."""

_TENSOR_OPS = ("gemm", "attention", "attention_backward")
_NEAR_LIMIT_W = 690.0


@dataclass(frozen=True, slots=True)
class Curve:
    """A kernel's time or power by clock, as seen in the wake of heavy work, with the weight of each point."""

    core_mhz: Array
    value: Array
    weight: Array


@dataclass(frozen=True, slots=True)
class Measured:
    """One kernel at auto.

    Attributes:
        kernel: the analytical kernel.
        time_s: of one call.
        power_w: mean.
        core_mhz: mean core clock.
        times: by clock; ``None`` where not seen.
        powers: by clock; ``None`` where not seen.
        settled: whether it ran for long enough for the power limit to have held it, where it would.
        held: set aside for judging: nothing is ever fitted to it.
        source: the sweep that it is from.
    """

    kernel: KernelSpec
    time_s: float
    power_w: float
    core_mhz: float
    times: Curve | None = None
    powers: Curve | None = None
    settled: bool = True
    held: bool = False
    source: str = ""

    @property
    def work(self) -> tuple[object, ...]:
        """What it computes: kernels of the same work belong together, whatever they are called."""
        kernel = self.kernel
        which = "" if kernel.call is None else kernel.call.op
        return which, kinds_of(kernel), kernel.shape, kernel.flops, kernel.bytes_read, kernel.bytes_written


def read_measured(name: str, workload: str) -> tuple[Measured, ...]:
    """The kernels of a sweep in data/h200, as :func:`measured_in` gives them."""
    return measured_in(DATA / f"{name}.csv", workload)


def measured_in(path: Path, workload: str) -> tuple[Measured, ...]:
    """The kernels of a sweep at auto, analytical, with their measurements, in order of execution."""
    sweep = read_sweep(path)
    run = run_named(workload)
    assert run is not None
    specs = {kernel.name: kernel for kernel in build_workload(run.model, run.shape).kernels}
    power = sweep.energy_j / sweep.time_s
    found = {
        sweep.kernels[kernel].name: Measured(specs[sweep.kernels[kernel].name], *map(float, values))
        for kernel, *values in zip(sweep.kernel_index, sweep.time_s, power, sweep.effective_core_mhz, strict=True)
    }
    return tuple(found[name] for name in specs if name in found)


def read_natural() -> tuple[Measured, ...]:
    """The operations measured alone and in the wake of products (data/h200/natural), those held out among them."""
    kernels = {kernel.name: kernel for kernel in read_workload(NATURAL / "operations.json").kernels}
    times, powers = (_by_operation(f"ops-{table}") for table in ("by-clock", "power-by-clock"))
    found = []
    for row in _rows(NATURAL / "ops-alone.csv"):
        name = row["name"]
        if name not in kernels:
            continue  # several operations in one, such as attention in steps
        source, _, own = name.rpartition(":")
        kernel = replace(kernels[name], name=own)
        curve, watts = np.array(times.get(name, ())), np.array(powers.get(name, ()))
        tensor = kernel.op in _TENSOR_OPS
        power_w = float(row["power_w"] or "nan")
        stated = TENSOR_CLOCK if tensor else 1.0
        found.append(
            Measured(
                kernel,
                1e-6 * float(row["us_per_call"]),
                power_w,
                float(row["sm_mhz"]) / stated,
                Curve(curve[:, 0] / stated, 1e-6 * curve[:, 1], curve[:, 2]) if len(curve) else None,
                Curve(watts[:, 0] / stated, watts[:, 1], watts[:, 2] ** 4) if len(watts) else None,
                settled=tensor or power_w < _NEAR_LIMIT_W,
                held=row["held"] == "1",
                source=source or "operations",
            )
        )
    return tuple(found)


def _by_operation(table: str) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = {}
    for row in _rows(NATURAL / f"{table}.csv"):
        name, *values = row.values()
        found.setdefault(name, []).append([float(value) for value in values])
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def read_all() -> tuple[Measured, ...]:
    """All that was measured: the kernels of every sweep that the preset is fitted to, and single operations."""
    swept = [replace(one, source=name) for name, workload in SWEEPS for one in read_measured(name, workload)]
    return (*swept, *read_natural())


def by_work(operations: Sequence[Measured]) -> list[Measured]:
    """Measurements of the same work, brought together by their geometric mean.

    Cards differ: the fitted one is in the middle. What the power limit had no time to hold stays by itself.
    """
    groups: dict[object, list[Measured]] = {}
    for one in operations:
        groups.setdefault((one.work, one.settled), []).append(one)
    return [_together(ones) for ones in groups.values()]


def _together(ones: Sequence[Measured]) -> Measured:
    means = {name: _mean([getattr(one, name) for one in ones]) for name in ("time_s", "power_w", "core_mhz")}
    times, powers = (next((found for one in ones if (found := getattr(one, name)) is not None), None) for name in _CURVES)
    return replace(ones[0], **means, times=times, powers=powers)


_CURVES = ("times", "powers")


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.exp(np.mean(np.log(known)))) if known else float("nan")
