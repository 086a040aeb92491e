"""How little energy a load could take: a lower bound for all policies on the same tables.

Whatever is done, prompts' tokens and answers' tokens are made in steps, each of some layout, clock, batch and budget; the
program finds the steps of least energy that make them all, in any fractional number, without an idle moment, prompts on
empty caches. It leaves the order of steps out, and so all waiting; of the deadlines it keeps that a step which decodes lasts
no longer than the time between two tokens, but for the share of tokens that may be late, which may come from any step. Costs
of decode steps are taken to be straight in the context, as those of the tables nearly are; where they bend, it is off by as
much.
"""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.model import Cluster
from wastenot.serving.cluster.results import Work
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.step_costs import StepCosts

_CHUNKS = (0.0, 1.0, 64.0, 128.0, 256.0, 384.0, 512.0, 768.0, 1024.0, 1536.0, 2048.0, 3072.0, 4096.0)


def step_bound(work: Work, cluster: Cluster, *, on_s: float = 0.0) -> float:
    """Joules below which no policy does the work of a load with these layouts.

    Args:
        work: of the load.
        cluster: with its layouts and deadlines.
        on_s: for policies that keep all GPUs on, how long: what they draw idle counts, and of a step what is above it.

    Raises:
        BadInputError: no step of any layout is short enough for the deadlines.
    """
    from scipy.optimize import linprog  # takes half a second to import

    idle_j = on_s * cluster.gpus * cluster.layouts[0].idle_gpu_w
    if not work.requests:
        return idle_j
    prompts, answers, context = work.prompts, work.answers, work.contexts / max(work.answers, 1.0)
    late = 1 - cluster.deadlines.share
    chunk, batch, energy, in_time = (
        np.concatenate(parts)
        for parts in zip(
            *(_steps(each, context, cluster.deadlines.tbt_s, on_s > 0) for each in cluster.layouts), strict=True
        )
    )
    # At least all prompts and answers; of the answers' tokens at most a share in steps that last too long.
    found = linprog(
        energy,
        A_ub=np.stack([-chunk, -batch, np.where(in_time, 0.0, batch)]),
        b_ub=np.array([-prompts, -answers, late * answers + late * work.requests]),
        method="highs",
    )
    if not found.success:
        raise BadInputError("no step of any layout is short enough for the deadlines; allow more time between tokens")
    return float(found.fun or 0.0) + idle_j


def _steps(
    engine: Engine, context: float, tbt_s: float, above_idle: bool
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Steps of an engine: tokens of prompts, sequences that decode, energy, and whether a step is short enough."""
    tables = engine.tables
    most = min(float(engine.most_step_tokens), float(tables.prefill_tokens[-1]))
    fits = min(float(engine.most_running), float(tables.batches[-1]), engine.cache_blocks * engine.block_tokens / context)
    batches = np.unique(np.append(np.concatenate([[0.0], tables.batches[tables.batches <= fits]]), np.floor(fits)))
    chunks = np.unique(np.minimum(np.append(_CHUNKS, most), most))
    chunk, batch = (each.ravel() for each in np.meshgrid(chunks, batches, indexing="ij"))
    possible = (chunk + batch > 0) & ((chunk + batch <= most) | (chunk == 0))
    if not engine.chunked:
        possible &= (chunk == 0) | (batch == 0)
    chunk, batch = chunk[possible], batch[possible]
    costs = StepCosts(tables)
    mixed_s, mixed_j = costs.mixed(np.maximum(chunk, 1.0), 0.0 * chunk, batch, np.full(len(chunk), context))
    decode_s, decode_j = costs.decode(np.maximum(batch, 1.0), np.full(len(batch), context))
    time_s, energy_j = np.where(chunk > 0, mixed_s, decode_s), np.where(chunk > 0, mixed_j, decode_j)
    time_s, energy_j = time_s + engine.overhead_s, energy_j + engine.overhead_s * tables.idle_power_w[:, None]
    if above_idle:
        energy_j = energy_j - time_s * engine.gpus * engine.idle_gpu_w
    in_time = (time_s <= tbt_s) | (batch == 0)
    settings = len(tables.settings)
    return np.tile(chunk, settings), np.tile(batch, settings), energy_j.ravel(), in_time.ravel()
