"""Attention at shapes that ``sim:h200`` was never fitted to, on an H200, and what the preset says of them.

On the card:

    wastenot kernel capture benchmarks/h200/attention_shapes.py:step --device cuda:0 --out shapes.json
    wastenot kernel sweep shapes.json --device nvidia:0 --clocks auto --warm-up 0.4s --window 0.8s --study shapes.db
    wastenot study export shapes.csv --study shapes.db

Anywhere, the judge of ``data/h200/attention``:

    PYTHONPATH=.:src python -m benchmarks.h200.attention_shapes

The shapes were fixed before any was measured: batches that fill the card's 132 multiprocessors badly and well.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

DECODE = {
    (32, 8): ((3, 700), (6, 3000), (12, 1500), (24, 900), (40, 2500), (70, 600), (100, 700), (160, 1200), (200, 400)),
    (32, 32): ((5, 1300), (12, 1500), (20, 2000), (50, 500), (90, 1000)),
}
"""Heads of queries and of keys: sequences and tokens in the cache of each."""

FORWARD = (
    *((batch, 32, 512) for batch in (3, 6, 11, 20, 40)),
    *((7, 16, 512), (12, 32, 384), (12, 32, 640)),
)
"""Sequences, heads, tokens of each sequence; causal."""


def step() -> None:
    """Every shape once, with each of PyTorch's fused kernels that takes it."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    every = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION)

    def inputs(batch: int, heads: int, tokens: int) -> torch.Tensor:
        return torch.randn(batch, tokens, heads, 128, device="cuda", dtype=torch.bfloat16).transpose(1, 2)

    for (heads, groups), shapes in DECODE.items():
        for batch, cached in shapes:
            query, key, value = inputs(batch, heads, 1), inputs(batch, groups, cached), inputs(batch, groups, cached)
            for backend in every[: 1 if groups < heads else 2]:
                with sdpa_kernel(backend):
                    scaled_dot_product_attention(query, key, value, enable_gqa=groups < heads)
    for batch, heads, tokens in FORWARD:
        query, key, value = (inputs(batch, heads, tokens) for _ in range(3))
        for backend in every:
            with sdpa_kernel(backend):
                scaled_dot_product_attention(query, key, value, is_causal=True)


def judge(folder: Path) -> None:
    """Print each shape's time and power, predicted over measured, and how far off each kind is."""
    from presets.h200_data import Measured
    from presets.h200_errors import errors_at_auto
    from wastenot.devices.simulated.kinds import kinds_of
    from wastenot.devices.simulated.preset import find_preset
    from wastenot.study.sweep_file import read_sweep
    from wastenot.workloads.capturing.workload_file import read_workload

    kernels = {kernel.name: kernel for kernel in read_workload(folder / "shapes.json").kernels}
    sweep = read_sweep(folder / "shapes.csv")
    columns = (sweep.kernel_index, sweep.time_s, sweep.energy_j / sweep.time_s, sweep.effective_core_mhz)
    measured = [
        Measured(kernels[sweep.kernels[index].name], *map(float, values)) for index, *values in zip(*columns, strict=True)
    ]
    found = defaultdict(list)
    attention = [one for one in measured if one.kernel.op == "attention"]  # what filled their inputs is of no interest
    for off in errors_at_auto(find_preset("h200"), attention):
        one, kind = off.measured, kinds_of(off.measured.kernel)[0]
        found[kind].append(abs(off.time))
        print(
            f"{kind:34} {one.kernel.shape!s:30} {1e6 * one.time_s:8.1f} µs {one.power_w:4.0f} W {one.core_mhz:5.0f} MHz"
            f"  time {off.time:+6.1%}  power {off.power:+6.1%}"
        )
    for kind, errors in sorted(found.items()):
        print(f"{kind:34} {len(errors):3} shapes: time off by {np.mean(errors):.1%} on average, {max(errors):.1%} at most")


if __name__ == "__main__":
    judge(Path(__file__).parents[2] / "data" / "h200" / "attention")
