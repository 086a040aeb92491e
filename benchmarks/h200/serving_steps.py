"""Whole steps of Llama 3 8B on an H200, and the kernels that they are made of: do these tell what those take?

Decode and prefill steps of the whole model, random weights in bf16, were run as CUDA graphs back to back: weights,
activations and the cache flow as in an engine. Then each kernel by itself, over buffers larger than the L2 cache.
Both at the clocks that the card takes by itself (data/h200/serving/steps.json). The steps shape nothing: they were
measured first, and the kernels' shapes were fixed before.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.kept import DATA
from wastenot.core.setting import AUTO
from wastenot.devices.protocol import Task
from wastenot.serving.model.engine_curves import kernels_by_curves
from wastenot.serving.model.engine_tables import EngineTables
from wastenot.serving.model.from_kernels import kernels_of, tables_of
from wastenot.study.sweep import Kernel, Sweep
from wastenot.workloads.serving_steps import StepShapes, step_parts

MODEL = "llama-8b"
OTHER_CARD = DATA / "h200" / "llama-8b-decode.csv"
SHAPES = StepShapes(
    product_tokens=(1, 16, 32, 64, 65, 96, 128, 129, 192, 256, 257, 384, 512, 513, 1024, 2048, 4096, 8192),
    smooth_tokens=(1, 64, 256, 2048, 8192),
    sequences=(1, 16, 64, 65, 128, 129, 256),
    context=(128, 1024, 4096, 8192),
    prompt_tokens=(16, 128, 512, 2048, 8192),
    past_tokens=(0,),
)
DECODE_SEQUENCES = (1, 8, 32, 128, 256)  # that attention is measured with


def parts_measured() -> list[tuple[Any, Any]]:
    """Kernels at their shapes."""
    found = [(part, kernel) for part, kernel in step_parts(MODEL, SHAPES) if part.size != "decode"]
    attention = step_parts(MODEL, replace(SHAPES, sequences=DECODE_SEQUENCES))
    return found + [(part, kernel) for part, kernel in attention if part.size == "decode"]


def with_missing_attention(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kernels, with attention of decode steps where it was not measured.

    Time and energy of attention that reads a large cache go by the tokens in it. The line goes through what was measured
    with the most tokens: 8 × 1,024 on this card, and 64 × 1,024 on another H200 (``data/h200/llama-8b-decode.csv``). No
    whole step is looked at.
    """
    held = {row["name"]: row for row in rows}
    wanted = [
        (part, batch, context)
        for batch in DECODE_SEQUENCES
        for context in SHAPES.context
        for part, _ in step_parts(MODEL, replace(SHAPES, sequences=(batch,), context=(context,)))
        if part.size == "decode"
    ]
    missing = [(part, batch * context) for part, batch, context in wanted if part.called not in held]
    near = held.get(f"attention of 8 sequences, {SHAPES.context[1]} in the cache")
    if not missing or near is None:
        return rows
    with OTHER_CARD.open(encoding="utf-8", newline="") as file:
        (far,) = (row for row in csv.DictReader(file) if row["kernel"] == "attention")
    near_tokens, far_tokens = 8 * SHAPES.context[1], 64 * 1024
    filled = list(rows)
    for part, tokens in missing:
        along = (tokens - near_tokens) / (far_tokens - near_tokens)
        time_s, energy_j = (near[key] + along * (float(far[key]) - near[key]) for key in ("time_s", "energy_j"))
        filled.append({"name": part.called, "count": part.count, "time_s": time_s, "energy_j": energy_j, "core_mhz": None})
    print(f"attention of {len(missing)} sizes was not measured; by tokens in the cache, on the line through two that were")
    return filled


def judge(record: dict[str, Any]) -> list[dict[str, float]]:
    """Steps put together from kernels beside steps measured."""
    rows = with_missing_attention(record["kernels"])
    nothing = np.full(len(rows), np.nan)
    column = {name: np.array([row[name] for row in rows], dtype=float) for name in ("time_s", "energy_j", "core_mhz")}
    sweep = Sweep(
        tuple(Kernel(row["name"], row["count"], None) for row in rows), np.arange(len(rows)), nothing, nothing, nothing,
        column["time_s"], column["energy_j"], nothing, nothing, column["core_mhz"], nothing, nothing, nothing,
        workload=f"{MODEL}-serving", device=record["provenance"]["gpu"],
    )  # fmt: skip
    tasks = [Task(part.called, ((kernel, 1),)) for part, kernel in parts_measured()]
    sums = tables_of(kernels_of(sweep), (AUTO,), "forecast", idle_power_w=0.0)
    tables = tables_of(kernels_by_curves(sweep, tasks, "sim:h200"), (AUTO,), "forecast", idle_power_w=0.0)
    named = f"{record['provenance']['gpu']}, {record['provenance']['made_at']}"
    print(f"{named}: kernels added up as they are by themselves, beside steps of a loop of its own")
    _beside(sums, record["steps"])
    print(f"{named}: kernels at one clock, beside the same")
    return _beside(tables, record["steps"])


def _beside(tables: EngineTables, rows: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Relative errors of steps in time and energy."""
    found = []
    for row in rows:
        decode = row["phase"] == "decode"
        cost = tables.decode(0, row["batch"], row["tokens"]) if decode else tables.prefill(0, row["tokens"])
        time_off, energy_off = cost.time_s / row["time_s"] - 1.0, cost.energy_j / row["energy_j"] - 1.0
        found.append({"time": time_off, "energy": energy_off})
        print(
            f"  {row['phase']:8}{row['batch']:4} × {row['tokens']:5}  {1e3 * row['time_s']:9.3f} ms {row['power_w']:5.0f} W"
            f"   time {time_off:+.1%}  energy {energy_off:+.1%}"
        )
    for what in ("time", "energy"):
        off = sorted(abs(each[what]) for each in found)
        mean, middle = sum(off) / len(off), off[len(off) // 2]
        print(f"  {what}: mean {mean:.1%}, median {middle:.1%}, largest {off[-1]:.1%} of {len(off)} steps")
    return found
