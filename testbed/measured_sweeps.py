"""Sweeps of real GPUs that forecasts are compared with, each in the role that was decided before the prior was changed.

A sweep that shaped the prior does not judge it. Sweeps of one card have one role, but for the L40S-like card of
``pdblend``: its prefill shaped, its decode judges. None of these files is part of the project; those missing are skipped.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from testbed.known_truth import rows_of
from wastenot.devices.simulated.preset import ClockTable, Preset, find_preset
from wastenot.study.sweep import Kernel, Sweep
from wastenot.study.sweep_file import read_sweep

Role = Literal["shaping", "judging"]
DATA = Path(os.environ.get("WASTENOT_MEASURED_SWEEPS", Path(__file__).parents[1].parent / "shared" / "data"))
"""The folder of measured sweeps."""


@dataclass(frozen=True, slots=True)
class MeasuredSweep:
    """A sweep of a real GPU.

    Attributes:
        name: of card and workload.
        role: whether it shaped the prior or judges it.
        file: in the folder of measured sweeps.
        gpu: a preset, or lowest and highest core clock and the step between them, memory clocks and power limit of the card.
    """

    name: str
    role: Role
    file: str
    gpu: str | tuple[float, float, float, tuple[float, ...], float]

    def preset(self) -> Preset:
        """What a user knows of the card: its clocks and its power limit."""
        if isinstance(self.gpu, str):
            return find_preset(self.gpu)
        lowest, highest, step, memories, limit = self.gpu
        other = find_preset("rtx-a4000")
        clocks = ClockTable(
            memory_mhz=memories, core_from_mhz=lowest, core_to_mhz=highest, core_step_mhz=step, boost_mhz=highest
        )
        known = {"name": "card", "model": "card", "clocks": clocks, "power_limits_w": (0.5 * limit, limit), "ops": {}}
        return other.model_copy(update=known | {"parameters": replace(other.parameters, power_limit_w=limit)})

    def read(self, folder: Path) -> Sweep:
        """Its rows; where it holds none at the default clocks, those at the highest clocks stand in for them."""
        path = folder / self.file
        with path.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        if "stage" in rows[0]:
            return _sweep((f"{r['stage']}.{r['instruction']}", r["frequency"], r["time"], r["energy"]) for r in rows)
        if "step_ms" in rows[0]:
            return _sweep(
                (f"{r['context_tokens']}x{r['batch']}", r["freq_mhz"], time_s, time_s * float(r["power_w"]))
                for r in rows
                for time_s in (float(r["step_ms"]) / 1e3,)
            )
        if "input_tokens" in rows[0]:
            return _sweep((r["input_tokens"], r["freq_mhz"], float(r["time_ms"]) / 1e3, r["energy_J"]) for r in rows)
        return read_sweep(path)


_A40 = (210.0, 1740.0, 15.0, (7251.0,), 300.0)
_A100 = (210.0, 1410.0, 15.0, (1215.0,), 400.0)
_GTX_980 = (500.0, 1000.0, 25.0, (500.0, 600.0, 700.0, 800.0, 900.0, 1000.0), 165.0)
_GTX_1080_TI = (1600.0, 2000.0, 25.0, (4000.0, 4500.0, 5000.0, 5500.0), 250.0)
_L40S = (210.0, 2520.0, 15.0, (9001.0,), 350.0)
_RTX_2070_SUPER = (1680.0, 2080.0, 25.0, (5800.0, 6300.0, 6800.0, 7300.0), 215.0)
_RTX_8000 = (300.0, 1710.0, 15.0, (6500.0,), 260.0)
_TITAN_X = (595.0, 1164.0, 37.5, (810.0, 3505.0), 250.0)

MEASURED_SWEEPS = (
    MeasuredSweep("RTX 3080 Ti, PolyBench, equal shares", "shaping", "rtx3080ti-polybench/sweep-share.csv", "rtx-3080-ti"),
    MeasuredSweep("RTX 3080 Ti, PolyBench", "shaping", "rtx3080ti-polybench/sweep.csv", "rtx-3080-ti"),
    MeasuredSweep("L40S, prefill", "shaping", "serving/pdblend-qwen2.5-7b-prefill.csv", _L40S),
    MeasuredSweep("GTX 1080 Ti, CUDA samples", "shaping", "forecast/gtx1080ti.csv", _GTX_1080_TI),
    MeasuredSweep("RTX 8000, CUDA samples", "shaping", "forecast/rtx8000-real.csv", _RTX_8000),
    MeasuredSweep("RTX 8000, microbenchmarks", "shaping", "forecast/rtx8000-microbenchmark.csv", _RTX_8000),
    MeasuredSweep("A40, GPT-3 175B", "shaping", "forecast/gpt3-175b-a40.csv", _A40),
    MeasuredSweep("A40, Bloom 176B", "shaping", "forecast/bloom-a40.csv", _A40),
    MeasuredSweep("GTX 980, CUDA samples", "judging", "gpu-dvfs/gtx980.csv", _GTX_980),
    MeasuredSweep("V100, 5 clocks", "judging", "gpu-dvfs/v100.csv", "v100"),
    MeasuredSweep("A100, GPT-3 175B", "judging", "perseus/gpt3-175b-a100-sxm.csv", _A100),
    MeasuredSweep("L40S, decode", "judging", "serving/pdblend-qwen2.5-7b-decode.csv", _L40S),
    MeasuredSweep("V100, CUDA samples", "judging", "forecast/v100-real.csv", "v100"),
    MeasuredSweep("V100, microbenchmarks", "judging", "forecast/v100-microbenchmark.csv", "v100"),
    MeasuredSweep("A100, Bloom 176B", "judging", "forecast/bloom-a100.csv", _A100),
    MeasuredSweep("A100, SPEC ACCEL", "judging", "forecast/spec-a100.csv", (*_A100[:4], 500.0)),
    MeasuredSweep("RTX 2070 Super, CUDA samples", "judging", "forecast/rtx2070s.csv", _RTX_2070_SUPER),
    MeasuredSweep("Titan X, PolyBench and Rodinia", "judging", "forecast/titanx-real.csv", _TITAN_X),
    MeasuredSweep("Titan X, microbenchmarks", "judging", "forecast/titanx-micro.csv", _TITAN_X),
)


def some_kernels(sweep: Sweep, kernels: np.ndarray) -> Sweep:
    """A sweep reduced to some of its kernels, given by ascending index."""
    kept = rows_of(sweep, np.isin(sweep.kernel_index, kernels))
    return replace(
        kept,
        kernels=tuple(sweep.kernels[index] for index in kernels),
        kernel_index=np.searchsorted(kernels, kept.kernel_index),
    )


def _sweep(rows: Iterable[tuple[str, str | float, str | float, str | float]]) -> Sweep:
    """From kernel, core clock, time and energy."""
    points = [(kernel, float(clock), float(time_s), float(energy_j)) for kernel, clock, time_s, energy_j in rows]
    points = list(_with_default_clocks(points))
    names = list(dict.fromkeys(kernel for kernel, *_ in points))
    core, time, energy = (np.array(column) for column in zip(*(point[1:] for point in points), strict=True))
    index = np.array([names.index(kernel) for kernel, *_ in points])
    absent = np.full(len(points), np.nan)
    kernels = tuple(Kernel(name, 1) for name in names)
    memory = np.where(np.isnan(core), np.nan, 1.0)
    return Sweep(kernels, index, core, memory, absent, time, energy, *[absent] * 6, workload="measured", device="card")


def _with_default_clocks(points: list[tuple[str, float, float, float]]) -> Iterator[tuple[str, float, float, float]]:
    highest = max(core for _, core, *_ in points)
    for kernel, core, time_s, energy_j in points:
        if core == highest:
            yield kernel, np.nan, time_s, energy_j
        yield kernel, core, time_s, energy_j
