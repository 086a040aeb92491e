"""Engines' steps put together from kernels, beside whole steps measured: on the simulated H200 and, by its data, a real one.

Batches, contexts, prompts and clocks are drawn; nearly none is one that kernels were measured at. The device that measures
whole steps has other noise than the one that measured kernels. Of engines of several GPUs it is one GPU's share, without the
exchange of data, which a single simulated GPU does not have.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.verdict import Verdict
from wastenot.core.arrays import FloatArray
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Device, Task
from wastenot.serving.model.engine_kernels import measure_kernels
from wastenot.serving.model.engine_tables import EngineTables
from wastenot.serving.model.from_kernels import default_settings, kernels_of, tables_of
from wastenot.study.store import open_study
from wastenot.sweeping.point import PointOptions, measure_point
from wastenot.workloads.build import build_workload
from wastenot.workloads.kernel import DTYPE_BYTES, KernelSpec
from wastenot.workloads.named import find_model
from wastenot.workloads.parts import Parts

STEPS = 40  # of each kind, half of them at the card's own clocks
MEASURED = Path("data/h200/serving/steps.json")
_OPTIONS = PointOptions(warm_up_s=3.0, window_s=2.0)
_KINDS = "decode", "prefill", "chunk", "mixed"
_Steps = list[tuple[KernelSpec, int]]


def main(verdict: Verdict) -> None:
    for model, degree, seed in (("llama-8b", 1, 101), ("llama-8b", 4, 102), ("llama-3b", 1, 103)):
        for kind, errors in simulated_errors(model, degree, seed).items():
            name = f"{model} on {degree}, {kind}"
            for column, what in enumerate(("time", "energy")):
                verdict.at_most(f"{name}: {what}, mean error, %", 100 * float(errors[:, column].mean()), 2.0)
                verdict.at_most(f"{name}: {what}, largest error, %", 100 * float(errors[:, column].max()), 5.0)
    if MEASURED.exists():
        from benchmarks.h200.serving_steps import judge

        found = judge(json.loads(MEASURED.read_text()))
        for what in ("time", "energy"):
            mean = float(np.mean([abs(each[what]) for each in found]))
            verdict.at_most(f"a real H200: {what}, mean error, %", 100 * mean, 5.0)


def simulated_errors(model: str, degree: int, seed: int) -> dict[str, FloatArray]:
    """Relative errors of time and energy by kind of step; each of shape (steps, 2)."""
    with tempfile.TemporaryDirectory() as folder:
        study = open_study(Path(folder) / "kernels.db", create=True)
        kernels = kernels_of(measure_kernels(open_device("sim:h200", seed=seed), model, study, degree=degree))
    tables = tables_of(kernels, default_settings(kernels), "simulated", idle_power_w=0.0)
    rng, device = np.random.default_rng(seed), open_device("sim:h200", seed=seed + 1000)
    auto = len(tables.settings) - 1
    found: dict[str, list[tuple[float, float]]] = {}
    for index in range(len(_KINDS) * STEPS):
        kind = _KINDS[index % len(_KINDS)]
        at = auto if index % (2 * len(_KINDS)) < len(_KINDS) else int(rng.integers(0, auto))
        forecast, step = _draw(kind, model, degree, tables, at, rng)
        time_s, energy_j = _measured(device, step, tables.settings[at])
        where = "its own clocks" if tables.settings[at] == AUTO else "a clock"
        off = abs(forecast[0] / time_s - 1.0), abs(forecast[1] / energy_j - 1.0)
        if max(off) > 0.05:
            print(f"    {kind} {tables.settings[at]}: {off[0]:.1%} {off[1]:.1%}")
        found.setdefault(f"{kind} at {where}", []).append(off)
    return {kind: np.array(values) for kind, values in found.items()}


def _draw(
    kind: str, model: str, degree: int, tables: EngineTables, at: int, rng: np.random.Generator
) -> tuple[tuple[float, float], _Steps]:
    """A step, what tables say of it, and its kernels."""

    def between(least: float, most: float) -> int:
        return int(np.exp(rng.uniform(np.log(least), np.log(most))))

    batch, context, past = between(1, 256.9), between(64, 8192), int(rng.integers(0, 8192))
    if kind == "decode":
        return tables.decode(at, batch, context)[:2], _decode(model, degree, batch, context)
    if kind == "mixed":
        tokens = between(256, 4096)
        return tables.mixed(at, tokens, past, batch, context)[:2], _mixed(model, degree, tokens, past, batch, context)
    tokens = between(128, 8192)
    past = past if kind == "chunk" else 0
    return tables.prefill(at, tokens, past)[:2], _prefill(model, degree, tokens, past)


def _decode(model: str, degree: int, batch: int, context: int) -> _Steps:
    workload = build_workload(
        model, phase="decode", batch=batch, sequence=context, tensor_parallel=degree, attention="flash"
    )
    return [(kernel, kernel.count) for kernel in workload.kernels]


def _prefill(model: str, degree: int, tokens: int, past: int) -> _Steps:
    workload = build_workload(model, phase="prefill", batch=1, sequence=tokens, tensor_parallel=degree, attention="flash")
    return [
        (_chunk(model, degree, kernel, tokens, past) if kernel.op == "attention" else kernel, kernel.count)
        for kernel in workload.kernels
    ]


def _chunk(model: str, degree: int, kernel: KernelSpec, tokens: int, past: int) -> KernelSpec:
    """Attention of new tokens to those before them and, causally, to each other."""
    sizes, keys = find_model(model), tokens + past
    work = Parts.of("bf16").attention(
        sizes.heads // degree, sizes.groups // degree, tokens, keys, sizes.head_width, used=(past + 0.5 * tokens) / keys
    )
    placed = work.placed(kernel.name, kernel.label, kernel.pass_name, kernel.block, kernel.count)
    return replace(placed, element_bytes=DTYPE_BYTES["bf16"])


def _mixed(model: str, degree: int, tokens: int, past: int, batch: int, context: int) -> _Steps:
    """All tokens together through the linear layers, attention of both kinds, a token for each sequence and the prompt."""
    together = {kernel.name: (kernel, count) for kernel, count in _decode(model, degree, tokens + batch, 1)}
    of_decode = next(each for each in _decode(model, degree, batch, context) if each[0].op == "attention")
    of_prompt = next(each for each in _prefill(model, degree, tokens, past) if each[0].op == "attention")
    head = next(each for each in _decode(model, degree, batch + 1, 1) if each[0].pass_name == "head")
    steps: _Steps = []
    for kernel, count in together.values():
        if kernel.op == "attention":
            steps += [(of_decode[0], count), (replace(of_prompt[0], name="attention_of_prompt"), count)]
        else:
            steps.append(head if kernel.pass_name == "head" else (kernel, count))
    return steps


def _measured(device: Device, steps: _Steps, setting: Setting) -> tuple[float, float]:
    found = measure_point(device, Task("iteration", tuple(steps)), setting, _OPTIONS)
    return found.time_s, found.energy_j
