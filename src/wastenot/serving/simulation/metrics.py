"""What a simulated engine says of itself, as the metrics of a running server would: policies that follow those read it.

Times and lengths are counted in the ranges that vLLM has, so a policy sees no more of them than it would of a server.
"""

from __future__ import annotations

import math

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.serving.bench.server_metrics import LatencyCounts, ServerReading
from wastenot.serving.model.engine import Engine
from wastenot.serving.simulation.served import GAP_EDGES_S

FIRST_EDGES_S: FloatArray = np.array(
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0]
)
"""Ends of the ranges of times to the first token; there is one more above."""
TOKEN_EDGES_S: FloatArray = np.array(
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
)
"""Likewise of times between tokens."""
PROMPT_EDGES: FloatArray = np.array([1.0, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000])
"""Likewise of prompts' tokens."""
_GAPS_BELOW = np.searchsorted(GAP_EDGES_S, TOKEN_EDGES_S * (1 + 1e-9), side="right") - 1


def reading(
    engine: Engine, running: int, waiting: int, free_blocks: int, gaps: IndexArray, first: IndexArray, prompts: IndexArray,
    prompt_tokens: int,
) -> ServerReading:  # fmt: skip
    """The metrics of an engine.

    Args:
        engine: that says so.
        running: requests that decode.
        waiting: other requests that are there.
        free_blocks: of its cache.
        gaps: tokens by the gap before them since it began, in the bins of :data:`GAP_EDGES_S`; shape (gap edges + 1,).
        first: requests by the time to their first token; shape (first edges + 1,).
        prompts: the same requests by the tokens of their prompts; shape (prompt edges + 1,).
        prompt_tokens: of them all.
    """
    within = np.append(np.cumsum(gaps)[_GAPS_BELOW], gaps.sum())
    return ServerReading(
        running=float(running),
        waiting=float(waiting),
        cache_used=1.0 - free_blocks / engine.cache_blocks,
        cache_tokens=float(engine.cache_blocks * engine.block_tokens),
        ttft=_counts(FIRST_EDGES_S, np.cumsum(first)),
        tbt=_counts(TOKEN_EDGES_S, within),
        prompts=_counts(PROMPT_EDGES, np.cumsum(prompts)),
        prompt_tokens=float(prompt_tokens),
        output_tokens=float(within[-1] + first.sum()),
    )


def _counts(edges: FloatArray, counts: IndexArray) -> LatencyCounts:
    return LatencyCounts((*edges.tolist(), math.inf), tuple(counts.astype(float).tolist()))
