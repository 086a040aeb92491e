"""What a server says of itself while it is measured: requests running and waiting, cache in use, tokens made.

vLLM, SGLang, TensorRT-LLM and Triton have these under different names; a server that has none is measured without.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.bench.metric_samples import samples

Quantity = Literal["running", "waiting", "cache_used", "prompt_tokens", "output_tokens", "preemptions"]

NAMES: Mapping[Quantity, tuple[str, ...]] = {
    "running": (
        "vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running",
        'nv_trt_llm_request_metrics{request_type="scheduled"}', "tgi_batch_current_size",
    ),
    "waiting": (
        "vllm:num_requests_waiting", "sglang:num_queue_reqs", "trtllm_num_requests_waiting",
        'nv_trt_llm_request_metrics{request_type="waiting"}', "tgi_queue_size",
    ),
    "cache_used": (
        "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "trtllm_kv_cache_utilization",
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"}',
    ),
    "prompt_tokens": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "trtllm_prompt_tokens_total"),
    "output_tokens": ("vllm:generation_tokens_total", "sglang:generation_tokens_total", "trtllm_generation_tokens_total"),
    "preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_reqs"),
}  # fmt: skip
"""By what names servers have a quantity; the first that is there counts."""

_PREFIXES = tuple({name.partition("{")[0] for names in NAMES.values() for name in names})

_PATHS = ("/metrics", "/prometheus/metrics")
_EVERY_S = 1.0
_MEAN_OVER_LABELS = frozenset({"cache_used"})
_TELLING = ("request_type", "kv_cache_block_type")  # labels that tell quantities of one name apart


@dataclass(slots=True)
class Scraped:
    """Samples of a server's metrics.

    Attributes:
        at_s: when, by the clock of ``time.perf_counter``.
        values: of each sample.
        names: that the server has for them.
    """

    at_s: list[float] = field(default_factory=list)
    values: list[dict[Quantity, float]] = field(default_factory=list)
    names: dict[Quantity, str] = field(default_factory=dict)

    def mean(self, quantity: Quantity, begin_s: float, end_s: float) -> float | None:
        """Mean of a gauge over a window; ``None`` where the server does not have it."""
        _, values = self._within(quantity, begin_s, end_s)
        return float(values.mean()) if len(values) else None

    def rate(self, quantity: Quantity, begin_s: float, end_s: float) -> float | None:
        """How fast a counter rose in a window; ``None`` where that is not known."""
        times, values = self._within(quantity, begin_s, end_s)
        if len(times) < 3 or np.any(np.diff(values) < 0.0):
            return None
        return float((values[-1] - values[0]) / (times[-1] - times[0]))

    def _within(self, quantity: Quantity, begin_s: float, end_s: float) -> tuple[FloatArray, FloatArray]:
        found = [
            (at, sample[quantity])
            for at, sample in zip(self.at_s, self.values, strict=True)
            if begin_s <= at <= end_s and quantity in sample
        ]
        pairs = np.asarray(found, dtype=float).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]


def read_metrics(text: str) -> dict[Quantity, tuple[str, float]]:
    """The quantities in a page of Prometheus metrics, each with the name it has there; summed over engines."""
    series: dict[str, list[float]] = {}
    for name, labels, value in samples(text, _PREFIXES):
        series.setdefault(name, []).append(value)
        for label in _TELLING:
            if label in labels:
                series.setdefault(f'{name}{{{label}="{labels[label]}"}}', []).append(value)
    found: dict[Quantity, tuple[str, float]] = {}
    for quantity, names in NAMES.items():
        for name in names:
            if name in series:
                values = series[name]
                found[quantity] = name, sum(values) / (len(values) if quantity in _MEAN_OVER_LABELS else 1)
                break
    return found


async def scrape(session: Any, url: str, headers: Mapping[str, str], into: Scraped) -> None:
    """Read a server's metrics once a second until cancelled; end at once where it has none."""
    for path in _PATHS:
        if await _once(session, url + path, headers, into):
            break
    else:
        return
    due = time.perf_counter()
    while True:
        due = max(due + _EVERY_S, time.perf_counter())
        await asyncio.sleep(due - time.perf_counter())
        await _once(session, url + path, headers, into)


async def busy_before(session: Any, url: str, headers: Mapping[str, str], patience_s: float) -> float:
    """Requests that a server still runs before any is sent, after waiting for them; 0 where it does not say.

    Requests of a measurement that was stopped just before run on for a moment on some servers.
    """
    until_s = time.perf_counter() + patience_s
    while True:
        before = Scraped()
        for path in _PATHS:
            if await _once(session, url + path, headers, before):
                break
        running = before.values[0].get("running", 0.0) if before.values else 0.0
        if running == 0.0 or time.perf_counter() > until_s:
            return running
        await asyncio.sleep(_EVERY_S / 4.0)


async def _once(session: Any, address: str, headers: Mapping[str, str], into: Scraped) -> bool:
    try:
        async with session.get(address, headers=headers) as reply:
            text = await reply.text() if reply.status == 200 else ""
    except Exception:  # a server without metrics is measured without
        return False
    values = read_metrics(text)
    if not values:
        return False
    into.at_s.append(time.perf_counter())
    into.values.append({quantity: value for quantity, (_, value) in values.items()})
    into.names.update({quantity: name for quantity, (name, _) in values.items()})
    return True
