"""A SYNTHETIC sweep: numbers from a textbook model of a GPU, not measured.

    python -m testbed.synthetic_gpu tests/kernels/page/synthetic-sweep.csv

A kernel's time is a smooth maximum of its core time and its memory time. Power is a constant, a part that rises with the
memory clock, and switching power (activity times voltage squared times core clock); the voltage is flat up to a knee and
rises above it. The default clocks are the highest ones, lowered where power would exceed the board's limit. Every point gets
two readings with 0.5 % of noise. The kernels are those of one GPT-3 XL training iteration, in the groups and the order of
the kernel-level DVFS paper (Table 1); their sizes are round figures.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CORE_MHZ = tuple(float(clock) for clock in range(210, 2101, 210))
MEMORY_MHZ = (810.0, 5001.0, 9251.0, 9501.0)
POWER_LIMIT_W = 350.0
COLUMNS = ["kernel", "count", "pass", "block", "core_mhz", "memory_mhz", "time_s", "energy_j", "effective_core_mhz"]

# name, core time and memory time of one call at the highest clocks (ms), activity of the core
Row = tuple[str, float, float, float]
EMBEDDING: tuple[Row, ...] = (("wte_wpe", 0.3, 1.6, 0.4), ("layernorm_first", 0.4, 1.8, 0.4))
FORWARD: tuple[Row, ...] = (
    ("qkv_gemm", 19.0, 5.0, 1.0),
    ("permute_qkv", 0.5, 2.6, 0.4),
    ("scores_gemm", 4.2, 3.9, 0.9),
    ("softmax", 2.4, 5.8, 0.6),
    ("values_gemm", 4.3, 3.8, 0.9),
    ("unpermute", 0.3, 1.0, 0.4),
    ("projection_gemm", 6.6, 2.2, 1.0),
    ("residual_layernorm_1", 0.8, 2.4, 0.5),
    ("up_gemm", 25.0, 6.0, 1.0),
    ("gelu", 1.6, 3.6, 0.6),
    ("down_gemm", 25.5, 6.2, 1.0),
    ("residual_layernorm_2", 0.8, 2.4, 0.5),
)
LOSS: tuple[Row, ...] = (
    ("logits_gemm", 160.0, 30.0, 1.0),
    ("softmax_loss", 14.0, 42.0, 0.6),
    ("logits_dinput_gemm", 162.0, 31.0, 1.0),
    ("logits_dweight_gemm", 158.0, 33.0, 1.0),
    ("layernorm_last_backward", 1.0, 3.2, 0.5),
)
BACKWARD: tuple[Row, ...] = (
    ("gelu_again", 1.6, 3.6, 0.6),
    ("down_dbias", 0.5, 1.3, 0.5),
    ("down_dbias_reduce", 0.02, 0.03, 0.3),
    ("down_dinput_gemm", 25.2, 6.1, 1.0),
    ("gelu_backward", 2.2, 4.9, 0.6),
    ("down_dweight_gemm", 25.8, 6.6, 1.0),
    ("up_dbias", 1.4, 4.3, 0.5),
    ("up_dinput_gemm", 25.4, 6.2, 1.0),
    ("up_dweight_gemm", 25.9, 6.7, 1.0),
    ("layernorm_2_backward", 1.1, 3.5, 0.5),
    ("projection_dbias", 0.4, 1.2, 0.5),
    ("projection_dbias_reduce", 0.02, 0.03, 0.3),
    ("projection_dinput_gemm", 6.7, 2.2, 1.0),
    ("projection_dweight_gemm", 6.9, 2.4, 1.0),
    ("unpermute_backward", 0.3, 1.0, 0.4),
    ("values_dscores_gemm", 4.4, 3.9, 0.9),
    ("values_dvalues_gemm", 4.3, 4.0, 0.9),
    ("softmax_backward", 3.0, 8.4, 0.6),
    ("scores_dquery_gemm", 4.4, 4.0, 0.9),
    ("scores_dkey_gemm", 4.4, 4.0, 0.9),
    ("permute_backward", 0.5, 2.6, 0.4),
    ("qkv_dbias", 1.1, 3.3, 0.5),
    ("qkv_dinput_gemm", 19.2, 5.1, 1.0),
    ("qkv_dweight_gemm", 19.5, 5.4, 1.0),
    ("layernorm_1_backward", 1.1, 3.5, 0.5),
)
EMBEDDING_BACKWARD: tuple[Row, ...] = (("wpe_backward", 0.5, 1.1, 0.4), ("wte_backward", 0.9, 2.6, 0.4))
LAYERS = 24
PASSES = (
    ("embedding", EMBEDDING, 1),
    ("forward", FORWARD, LAYERS),
    ("loss", LOSS, 1),
    ("backward", BACKWARD, LAYERS),
    ("embedding_backward", EMBEDDING_BACKWARD, 1),
)


@dataclass(frozen=True)
class Costs:
    """Time and power of kernels at clocks; arrays of shape (kernels, settings)."""

    time_s: NDArray[np.float64]
    power_w: NDArray[np.float64]


def costs(
    core_time_s: NDArray[np.float64],
    memory_time_s: NDArray[np.float64],
    activity: NDArray[np.float64],
    core_mhz: NDArray[np.float64],
    memory_mhz: NDArray[np.float64],
) -> Costs:
    """The model described above.

    Args:
        core_time_s: core time of each kernel at the highest clocks, shape (kernels, 1), as the next two.
        memory_time_s: memory time of each kernel at the highest clocks.
        activity: fraction of the core's switching power drawn during its core time.
        core_mhz: shape (settings,) or (kernels, settings).
        memory_mhz: shape (settings,) or (kernels, settings).
    """
    core = core_time_s * CORE_MHZ[-1] / core_mhz
    memory = memory_time_s * MEMORY_MHZ[-1] / memory_mhz
    time = (core**6 + memory**6) ** (1 / 6)
    voltage = 1.0 + 0.55 * np.maximum(core_mhz - 1300.0, 0.0) / 800.0
    switching = (0.35 + 0.65 * activity * core / time) * 105.0 * voltage**2 * core_mhz / 1000.0
    traffic = 45.0 * (memory_time_s / time)
    return Costs(time, 45.0 + 45.0 * memory_mhz / MEMORY_MHZ[-1] + switching + traffic)


def auto_core_mhz(
    core_time_s: NDArray[np.float64], memory_time_s: NDArray[np.float64], activity: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The highest core clock, in steps of 15 MHz, at which each kernel stays within the power limit; shape (kernels, 1)."""
    clocks = np.arange(CORE_MHZ[0], CORE_MHZ[-1] + 1, 15.0)
    power = costs(core_time_s, memory_time_s, activity, clocks, np.full_like(clocks, MEMORY_MHZ[-1])).power_w
    under = np.where(power <= POWER_LIMIT_W, clocks, CORE_MHZ[0])
    return under.max(axis=1, keepdims=True)


def readings(seed: int = 2026) -> Iterator[tuple[str, int, str, str, str, str, str, str, str]]:
    """Rows of the sweep, in order of execution: two readings of every kernel at the default clocks and every clock pair."""
    rng = np.random.default_rng(seed)
    rows = [(pass_name, count, *row) for pass_name, kernels, count in PASSES for row in kernels]
    core_ms, memory_ms, activity = (np.array([[row[column]] for row in rows]) for column in (3, 4, 5))
    core, memory = core_ms * 1e-3, memory_ms * 1e-3
    pairs = [(core_clock, memory_clock) for memory_clock in MEMORY_MHZ for core_clock in CORE_MHZ]
    ceiling = auto_core_mhz(core, memory, activity)
    in_effect = np.minimum([pair[0] for pair in pairs], ceiling)
    swept = costs(core, memory, activity, in_effect, np.broadcast_to([pair[1] for pair in pairs], in_effect.shape))
    auto = costs(core, memory, activity, ceiling, np.full_like(ceiling, MEMORY_MHZ[-1]))
    for index, (pass_name, count, name, *_) in enumerate(rows):
        points = [("", "", auto.time_s[index, 0], auto.power_w[index, 0], ceiling[index, 0])]
        points += [
            (f"{pair[0]:g}", f"{pair[1]:g}", *values)
            for pair, *values in zip(pairs, swept.time_s[index], swept.power_w[index], in_effect[index], strict=True)
        ]
        for core_text, memory_text, time_s, power_w, effective in points:
            for _ in range(2):
                time = time_s * (1 + 0.002 * rng.standard_normal())
                energy = time * power_w * (1 + 0.005 * rng.standard_normal())
                block = "layer" if count == LAYERS else ""
                yield (
                    name,
                    count,
                    pass_name,
                    block,
                    core_text,
                    memory_text,
                    f"{time:.6e}",
                    f"{energy:.6e}",
                    f"{effective:g}",
                )


def main(path: str) -> None:
    """Write the sweep as CSV."""
    with Path(path).open("w", encoding="utf-8", newline="") as stream:
        out = csv.writer(stream, lineterminator="\n")
        out.writerow(COLUMNS)
        out.writerows(readings())


if __name__ == "__main__":
    main(*sys.argv[1:])
