"""Whole steps of Llama 3 8B on a real GPU, and the kernels that they are made of: do these tell what those take?

    WASTENOT_READ_ONLY=1 PYTHONPATH=src:build/site python -m benchmarks.serving_on_gpu OUT.json       # 5 minutes on an H200
    python -m benchmarks.serving_on_gpu OUT.json --smoke       # a minute on a CPU; says nothing about any GPU
    python -m benchmarks.serving_on_gpu OUT.json --judge       # steps put together from the kernels of a file, again

Decode and prefill steps of the whole model, random weights in bf16, run as CUDA graphs back to back: weights, activations
and the cache flow as in an engine. Then each kernel by itself, over buffers larger than the L2 cache, as wastenot measures.
Both at the clocks that the card takes by itself; nothing is set. Energy is by NVML's counter from one step of it to another.

The steps shape nothing: they are measured first, and the kernels' shapes were fixed before.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import platform
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wastenot.core.errors import WastenotError
from wastenot.core.setting import AUTO
from wastenot.core.version import own_version
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Device, Task
from wastenot.meters.mean_power import pass_time, power_meter
from wastenot.sweeping.point import PointOptions, measure_point
from wastenot.workloads.models import Model
from wastenot.workloads.named import find_model
from wastenot.workloads.operations.elementwise import multiply_by_silu
from wastenot.workloads.operations.norms import residual_rms_norm, rms_norm
from wastenot.workloads.serving_steps import StepShapes, step_parts

if TYPE_CHECKING:
    from wastenot.serving.model.tables import EngineTables

MODEL = "llama-8b"
OTHER_CARD = Path(__file__).parent.parent / "data" / "h200" / "llama-8b-decode.csv"
DECODE = (
    (1, 128), (1, 8192), (8, 1024), (12, 3000), (32, 512), (48, 2000), (64, 1024), (64, 8192), (100, 700), (128, 2048),
    (200, 1500), (256, 300), (256, 2048),
)  # fmt: skip
PREFILL = (128, 300, 512, 1000, 2048, 3000, 5000, 8192)
SHAPES = StepShapes(
    product_tokens=(1, 16, 32, 64, 65, 96, 128, 129, 192, 256, 257, 384, 512, 513, 1024, 2048, 4096, 8192),
    smooth_tokens=(1, 64, 256, 2048, 8192),
    sequences=(1, 16, 64, 65, 128, 129, 256),
    context=(128, 1024, 4096, 8192),
    prompt_tokens=(16, 128, 512, 2048, 8192),
    past_tokens=(0,),
)
DECODE_SEQUENCES = (1, 8, 32, 128, 256)  # that attention is measured with

WARM_S, WINDOW_S = 0.7, 1.5
KERNEL_OPTIONS = PointOptions(warm_up_s=0.3, window_s=0.8)
QUEUED_S = 0.12  # of work that waits on the GPU, while the host reads the counter
SMOKE_DECODE, SMOKE_PREFILL = ((1, 128), (4, 256)), (64,)
SMOKE_MODEL = Model("llama-smoke", "llama", 2, 64, 4, 2, 128, 256, 0, False, "made up")


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of a layer, as (outputs, inputs)."""

    qkv: Tensor
    projection: Tensor
    gate_up: Tensor
    down: Tensor
    norm_1: Tensor
    norm_2: Tensor


class Llama:
    """Llama with random weights, step by step.

    Args:
        model: its sizes.
        device: PyTorch's name of it.
        cache_tokens: that the cache holds, of all sequences.
    """

    def __init__(self, model: Model, device: str, cache_tokens: int) -> None:
        self.model, self.device = model, device
        self.on_gpu = device != "cpu"
        make = torch.Generator(device).manual_seed(0)

        def weight(*shape: int, scale: float = 0.02) -> Tensor:
            return torch.empty(shape, dtype=torch.bfloat16, device=device).normal_(0.0, scale, generator=make)

        width, hidden, head = model.width, model.hidden, model.head_width
        qkv = (model.heads + 2 * model.groups) * head
        ones = torch.ones(width, dtype=torch.bfloat16, device=device)
        self.layers = [
            Layer(weight(qkv, width), weight(width, width), weight(2 * hidden, width), weight(width, hidden), ones, ones)
            for _ in range(model.layers)
        ]
        self.table, self.head, self.norm = weight(model.vocabulary, width), weight(model.vocabulary, width), ones
        self.cache = [[weight(cache_tokens * model.groups * head, scale=1.0) for _ in range(2)] for _ in range(model.layers)]
        frequencies = 500_000.0 ** (-torch.arange(0, head, 2, device=device, dtype=torch.float32) / head)
        angles = torch.arange(16_384, device=device, dtype=torch.float32)[:, None] * frequencies
        self.cosine, self.sine = angles.cos(), angles.sin()
        self.positions = torch.arange(16_384, device=device)
        self.how = "eager"
        self._norm: Callable[..., Any] = rms_norm
        self._residual: Callable[..., Any] = residual_rms_norm
        self._silu: Callable[..., Any] = _silu_halves
        self._turn: Callable[..., Any] = _turn_and_store
        if self.on_gpu:
            if hasattr(torch.ops.aten, "_fused_rms_norm"):
                self._norm = lambda x, w: torch.ops.aten._fused_rms_norm(x, [x.shape[-1]], w, 1e-5)
            else:
                self._norm = torch.compile(rms_norm, dynamic=True)
            self._residual = torch.compile(residual_rms_norm, dynamic=True)
            self._silu = torch.compile(_silu_halves, dynamic=True)
            from benchmarks.rotary_and_store import turn_and_store

            self._turn, self.how = turn_and_store, "compiled"

    def decode(self, batch: int, context: int) -> Callable[[], Tensor]:
        """A step that makes a token for each of ``batch`` sequences; with it each has ``context`` in the cache."""
        tokens = torch.randint(self.model.vocabulary, (batch,), device=self.device)
        return lambda: self._step(tokens, batch, context, context - 1)

    def prefill(self, tokens: int) -> Callable[[], Tensor]:
        """A step that takes in a prompt and makes its first token."""
        ids = torch.randint(self.model.vocabulary, (tokens,), device=self.device)
        return lambda: self._step(ids, 1, tokens, 0)

    @torch.no_grad()
    def _step(self, tokens: Tensor, batch: int, keys: int, position: int) -> Tensor:
        model = self.model
        rows, head = len(tokens), model.head_width
        queries = rows // batch
        cosine, sine = self.cosine[position : position + queries], self.sine[position : position + queries]
        positions = self.positions[position : position + queries]
        x = torch.nn.functional.embedding(tokens, self.table)
        normed = self._norm(x, self.norm)[0]
        size = batch * model.groups * keys * head
        for layer, (key_pool, value_pool) in zip(self.layers, self.cache, strict=True):
            key, value = (each[:size].view(batch, model.groups, keys, head) for each in (key_pool, value_pool))
            qkv = torch.mm(normed, layer.qkv.t()).view(batch, queries, model.heads + 2 * model.groups, head)
            query = self._turn(qkv, cosine, sine, key, value, positions, model.heads, model.groups)
            mixed = self._attention(query.transpose(1, 2), key, value, queries > 1)
            mixed = mixed.transpose(1, 2).reshape(rows, model.heads * head)
            x, normed, _ = self._residual(x, torch.mm(mixed, layer.projection.t()), layer.norm_1)
            gated = self._silu(torch.mm(normed, layer.gate_up.t()))
            x, normed, _ = self._residual(x, torch.mm(gated, layer.down.t()), layer.norm_2)
        last = normed if queries == 1 else normed.view(batch, queries, -1)[:, -1]
        return torch.mm(last, self.head.t())

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        if self.on_gpu:
            found: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal)[0]
            return found
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)


def _silu_halves(both: Tensor) -> Tensor:
    gate, up = both.chunk(2, -1)
    return multiply_by_silu(gate, up)


def _turn_and_store(
    qkv: Tensor, cosine: Tensor, sine: Tensor, key: Tensor, value: Tensor, positions: Tensor, heads: int, groups: int
) -> Tensor:
    """Rotate queries and keys; keys and values go into the cache; returns queries, (batch, new, heads, width)."""
    cos, sin = cosine[:, None, :], sine[:, None, :]
    query = _rotated(qkv[:, :, :heads], cos, sin)
    key[:, :, positions] = _rotated(qkv[:, :, heads : heads + groups], cos, sin).transpose(1, 2)
    value[:, :, positions] = qkv[:, :, heads + groups :].transpose(1, 2)
    return query


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    first, second = x[..., :half].float(), x[..., half:].float()
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1).to(x.dtype)


class Replays:
    """A step as a CUDA graph, run back to back; on a CPU just called."""

    def __init__(self, step: Callable[[], Tensor], on_gpu: bool) -> None:
        self._gpu = on_gpu
        self._events: deque[torch.cuda.Event] = deque()
        self.ended: list[torch.cuda.Event] = []
        self.calls: list[float] = []
        self._step = step
        if not on_gpu:
            step()
            return
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._out = step()
        self._graph.replay()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(3):
            self._graph.replay()
        torch.cuda.synchronize()
        self._ahead = max(2, round(QUEUED_S / ((time.perf_counter() - began) / 3)))

    def feed(self) -> None:
        """Keep work queued."""
        if not self._gpu:
            began = time.perf_counter()
            self._step()
            self.calls.append(time.perf_counter() - began)
            return
        while self._events and self._events[0].query():
            self.ended.append(self._events.popleft())
        while len(self._events) < self._ahead:
            self._graph.replay()
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)

    def mark(self) -> None:
        """Forget what was, but for the last step that has ended."""
        self.feed()
        self.ended, self.calls = self.ended[-1:], []

    def time_s(self) -> tuple[float, int]:
        """Mean time of a step since the mark, and how many there were."""
        if not self._gpu:
            return sum(self.calls) / len(self.calls), len(self.calls)
        self.feed()
        number = len(self.ended) - 1
        seconds = 1e-3 * self.ended[0].elapsed_time(self.ended[-1]) / number
        torch.cuda.synchronize()
        return seconds, number


def measure_step(step: Callable[[], Tensor], device: Device, on_gpu: bool, window_s: float, warm_s: float) -> dict[str, Any]:
    """Time and energy of a step, run back to back."""
    replays = Replays(step, on_gpu)
    replays.feed()
    pass_time(device, warm_s, replays.feed)
    meter = power_meter(device, replays.feed)
    meter.begin()
    replays.mark()
    laps = 5
    clocks = []
    for _ in range(laps):
        meter.lap(window_s / laps)
        clocks.append(device.sensors.clocks().core_mhz)
    mean = meter.mean()
    time_s, number = replays.time_s()
    known = sorted(each for each in clocks if each is not None)
    return {
        "time_s": time_s, "power_w": mean.power_w, "power_se_w": mean.error_w, "energy_j": mean.power_w * time_s,
        "steps": number, "window_s": mean.seconds, "core_mhz": known[len(known) // 2] if known else None,
        "temperature_c": device.sensors.temperature_c(),
    }  # fmt: skip


def parts_to_measure(smoke: bool) -> list[tuple[Any, Any]]:
    """Kernels at their shapes; of those that are alike only one."""
    shapes = SHAPES
    if smoke:
        shapes = StepShapes((1, 64, 128, 256, 8192), (1, 64, 8192), (1, 64, 256), (128, 8192), (16, 8192), (0,))
    parts = step_parts(MODEL, shapes)
    wanted = DECODE_SEQUENCES if not smoke else (1, 64, 256)
    found = [(part, kernel) for part, kernel in parts if part.size != "decode"]
    attention = step_parts(MODEL, replace(shapes, sequences=wanted))
    return found + [(part, kernel) for part, kernel in attention if part.size == "decode"]


def provenance(device: Device, smoke: bool) -> dict[str, Any]:
    """Where the numbers come from."""
    driver, typed = device.identity.driver, " ".join(["python -m benchmarks.serving_on_gpu", *sys.argv[1:]])
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"), "gpu": device.identity.model, "driver": driver,
        "torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version(),
        "wastenot": own_version(), "commit": git, "command": typed, "clocks": "the card's own", "smoke": smoke,
        "window_s": WINDOW_S, "warm_s": WARM_S, "kernel_options": asdict(KERNEL_OPTIONS), "model": MODEL, "dtype": "bf16",
    }  # fmt: skip


def main() -> int:
    """Measure, and judge where SciPy is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--smoke", action="store_true", help="a tiny model on the CPU, kernels on sim:h200")
    parser.add_argument("--judge", action="store_true", help="only say what the file says")
    parser.add_argument("--at-most", type=float, default=420.0, metavar="S", help="begin nothing after so many seconds")
    options = parser.parse_args()
    if not options.judge:
        _measure(options.out, options.smoke, options.at_most)
    try:
        import scipy  # noqa: F401
    except ImportError:
        print("no SciPy here; judge elsewhere with --judge")
        return 0
    judge(json.loads(options.out.read_text()))
    return 0


def _measure(out: Path, smoke: bool, at_most_s: float) -> None:
    began = time.monotonic()
    device = open_device("sim:h200", wall_time=True) if smoke else open_device("nvidia:0", allow_clock_control=False)
    record: dict[str, Any] = {
        "provenance": provenance(device, smoke),
        "steps": [],
        "kernels": [],
        "failed": [],
    }

    def note(kind: str, what: str, row: dict[str, Any] | str) -> None:
        if isinstance(row, str):
            record["failed"].append({"what": what, "why": row})
            print(f"{time.monotonic() - began:6.1f} s  {what}: {row}", flush=True)
        else:
            record[kind].append(row)
            print(
                f"{time.monotonic() - began:6.1f} s  {what}: {1e3 * row['time_s']:.4f} ms, "
                f"{row['energy_j'] / row['time_s']:.0f} W, {row['core_mhz'] or 0:.0f} MHz",
                flush=True,
            )
        out.write_text(json.dumps(record))

    _measure_steps(device, smoke, began + at_most_s, note)
    if not smoke:  # the model has gone with that function; its memory goes back to the card
        gc.collect()
        torch.cuda.empty_cache()
    kernels_device = open_device("sim:h200") if smoke else device
    parts = parts_to_measure(smoke)
    known: dict[Any, dict[str, Any]] = {}
    for index, (part, kernel) in enumerate(parts):
        if time.monotonic() - began > at_most_s:
            print(f"{len(parts) - index} kernels left out: no time", flush=True)
            break
        key = (kernel.op, kernel.shape, kernel.flops, kernel.bytes_moved)
        row = known.get(key)
        if row is None:
            try:
                found = measure_point(kernels_device, Task(part.called, ((kernel, 1),)), AUTO, KERNEL_OPTIONS)
            except WastenotError as error:
                note("kernels", part.called, str(error))
                continue
            row = {
                "time_s": found.time_s, "time_se_s": found.time_se_s, "energy_j": found.energy_j,
                "energy_se_j": found.energy_se_j, "core_mhz": found.effective_core_mhz, "calls": found.calls,
                "temperature_c": found.temperature_c, "how": found.how, "flags": list(found.flags),
            }  # fmt: skip
            known[key] = row
        note("kernels", part.called, {"name": part.called, "count": part.count, **row})
    print(f"{time.monotonic() - began:.0f} s in all", flush=True)


def _measure_steps(device: Device, smoke: bool, ends_s: float, note: Callable[[str, str, Any], None]) -> None:
    decode, prefill = (SMOKE_DECODE, SMOKE_PREFILL) if smoke else (DECODE, PREFILL)
    most = max(*(batch * context for batch, context in decode), *prefill)
    began = time.monotonic()
    llama = Llama(SMOKE_MODEL if smoke else find_model(MODEL), "cpu" if smoke else "cuda:0", most)
    if not smoke:
        torch.cuda.synchronize()
    print(f"model and cache made in {time.monotonic() - began:.1f} s", flush=True)
    window_s, warm_s = (0.5, 0.1) if smoke else (WINDOW_S, WARM_S)
    steps = [("decode", batch, context) for batch, context in decode] + [("prefill", 1, tokens) for tokens in prefill]
    for phase, batch, tokens in steps:
        if time.monotonic() > ends_s:
            break
        what = f"{phase} step of {batch} × {tokens}"
        step = llama.decode(batch, tokens) if phase == "decode" else llama.prefill(tokens)
        try:
            row = measure_step(step, device, not smoke, window_s, warm_s)
        except (RuntimeError, WastenotError) as error:
            note("steps", what, f"{type(error).__name__}: {str(error)[:300]}")
            continue
        note("steps", what, {"phase": phase, "batch": batch, "tokens": tokens, "how": llama.how, **row})


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
    import numpy as np

    from wastenot.serving.model.engine_curves import kernels_by_curves
    from wastenot.serving.model.from_kernels import kernels_of, tables_of
    from wastenot.study.sweep import Kernel, Sweep

    rows = with_missing_attention(record["kernels"])
    nothing = np.full(len(rows), np.nan)
    column = {name: np.array([row[name] for row in rows], dtype=float) for name in ("time_s", "energy_j", "core_mhz")}
    sweep = Sweep(
        tuple(Kernel(row["name"], row["count"], None) for row in rows), np.arange(len(rows)), nothing, nothing, nothing,
        column["time_s"], column["energy_j"], nothing, nothing, column["core_mhz"], nothing, nothing, nothing,
        workload=f"{MODEL}-serving", device=record["provenance"]["gpu"],
    )  # fmt: skip
    specs = {part.called: kernel for part, kernel in parts_to_measure(record["provenance"]["smoke"])}
    sums = tables_of(kernels_of(sweep), (AUTO,), "forecast", idle_power_w=0.0)
    tables = tables_of(kernels_by_curves(sweep, specs, "sim:h200"), (AUTO,), "forecast", idle_power_w=0.0)
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


if __name__ == "__main__":
    raise SystemExit(main())
