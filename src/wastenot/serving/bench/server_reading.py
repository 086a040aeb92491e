"""What a server says of itself at one moment, as far as its clock is to be set by it.

vLLM's names come first; SGLang's and TensorRT-LLM's are understood, too. What a server says of several engines (data
parallelism) is told of the fullest one, since all have the same clock; counters are of all together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from wastenot.core.errors import ServerError
from wastenot.serving.bench.latency_counts import LatencyCounts, counts_of
from wastenot.serving.bench.metric_samples import Sample, samples
from wastenot.serving.bench.scraping import NAMES, Quantity

_TTFT: Final = tuple(f"{stem}time_to_first_token_seconds" for stem in ("vllm:", "sglang:", "trtllm_"))
_TBT: Final = (
    "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds", "sglang:inter_token_latency_seconds",
    "trtllm_time_per_output_token_seconds",
)  # fmt: skip
_PROMPTS: Final = ("vllm:request_prompt_tokens", "sglang:prompt_tokens_histogram")
_CACHE: Final = "vllm:cache_config_info"

METRIC_NAMES: Final = tuple(
    dict.fromkeys(
        [name.partition("{")[0] for names in NAMES.values() for name in names]
        + [f"{name}_bucket" for name in (*_TTFT, *_TBT, *_PROMPTS)]
        + [_CACHE]
    )
)
"""All series that are understood."""


@dataclass(frozen=True, slots=True)
class ServerReading:
    """One reading; what the server does not say is ``None``.

    Attributes:
        running: requests in the batch of its fullest engine.
        waiting: requests that wait, on all its engines.
        engines: how many it has.
        cache_used: share of the key-value cache of its fullest engine.
        cache_tokens: that the cache of an engine holds.
        ttft: times to the first token so far.
        tbt: times between tokens so far, or mean times of requests where it is an older server.
        prompts: lengths of prompts so far, in tokens.
        prompt_tokens: prefilled so far.
        output_tokens: made so far.
    """

    running: float
    waiting: float
    engines: int = 1
    cache_used: float | None = None
    cache_tokens: float | None = None
    ttft: LatencyCounts | None = None
    tbt: LatencyCounts | None = None
    prompts: LatencyCounts | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None

    def began_anew(self, before: ServerReading) -> bool:
        """Whether a counter is lower than before: another server has taken the place of the one before."""
        for name in ("prompt_tokens", "output_tokens"):
            now, then = getattr(self, name), getattr(before, name)
            if then is not None and (now is None or now < then):
                return True
        for name in ("ttft", "tbt"):
            now, then = getattr(self, name), getattr(before, name)
            if then is not None and (now is None or now.since(then) is None):
                return True
        return False


def reading_of_page(text: str) -> ServerReading:
    """The reading in a page of metrics; see :func:`reading_of`."""
    return reading_of(samples(text, METRIC_NAMES))


def reading_of(found: Iterable[Sample]) -> ServerReading:
    """The reading that samples make up.

    Raises:
        ServerError: they do not say how many requests run and wait, or say what cannot be.
    """
    series: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in found:
        series[sample.name].append(sample)
    running, waiting = _gauge(series, "running"), _gauge(series, "waiting")
    if running is None or waiting is None:
        missing: Quantity = "running" if running is None else "waiting"
        raise ServerError(f"has no metric of requests that are {missing}, such as {NAMES[missing][0]}")
    cache = _gauge(series, "cache_used")
    return ServerReading(
        running=max(running),
        waiting=sum(waiting),
        engines=len(running),
        cache_used=None if cache is None else max(cache),
        cache_tokens=_cache_tokens(series.get(_CACHE, ())),
        ttft=_counts(series, _TTFT),
        tbt=_counts(series, _TBT),
        prompts=_counts(series, _PROMPTS),
        prompt_tokens=_counter(series, "prompt_tokens"),
        output_tokens=_counter(series, "output_tokens"),
    )


def _gauge(series: Mapping[str, list[Sample]], quantity: Quantity) -> list[float] | None:
    """The values of all engines of the first name that there is."""
    for full in NAMES[quantity]:
        name, _, label = full.partition("{")
        key, _, wanted = label.rstrip("}").partition("=")
        values = [each.value for each in series.get(name, ()) if not key or each.labels.get(key) == wanted.strip('"')]
        if values:
            for value in values:
                if not 0.0 <= value < math.inf:
                    raise ServerError(f"{name} is {value:g}")
            return values
    return None


def _counter(series: Mapping[str, list[Sample]], quantity: Quantity) -> float | None:
    values = _gauge(series, quantity)
    return None if values is None else sum(values)


def _counts(series: Mapping[str, list[Sample]], names: tuple[str, ...]) -> LatencyCounts | None:
    for name in names:
        buckets = series.get(f"{name}_bucket")
        if buckets:
            return counts_of(buckets)
    return None


def _cache_tokens(found: Iterable[Sample]) -> float | None:
    for sample in found:
        try:
            return float(sample.labels["num_gpu_blocks"]) * float(sample.labels["block_size"])
        except (KeyError, ValueError):
            continue
    return None
