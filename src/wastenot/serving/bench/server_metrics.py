"""What a server says of itself at one moment in what it serves to Prometheus, as far as its clock is to be set by it.

vLLM's names come first; SGLang's and TensorRT-LLM's are understood, too. What a server says of several engines (data
parallelism) is told of the fullest one, since all have the same clock; counters are of all together.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from wastenot.core.errors import ServerError

METRIC_PATHS = ("/metrics", "/prometheus/metrics")
"""Where servers have them."""

_LINE = re.compile(r'^([A-Za-z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)')
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One value of a series."""

    name: str
    labels: Mapping[str, str]
    value: float


_MOST_SAMPLES = 50_000  # of a page that are of interest


def samples(text: str, prefixes: tuple[str, ...] = ("",)) -> Iterator[Sample]:
    """The samples of a page whose names begin with one of some prefixes; lines that are none are skipped.

    Raises:
        ServerError: there are more than any server has.
    """
    found = 0
    for line in text.splitlines():
        if not line.startswith(prefixes):  # most of a page is of no interest, and this is cheap
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        found += 1
        if found > _MOST_SAMPLES:
            raise ServerError(f"its metrics have more than {_MOST_SAMPLES:,} samples")
        yield Sample(match[1], dict(_LABEL.findall(match[2])) if match[2] else {}, value)


@dataclass(frozen=True, slots=True)
class LatencyCounts:
    """A histogram.

    Attributes:
        edges: upper ends of its ranges, ascending; the last is infinite.
        counts: how many were at most so much, ascending.
    """

    edges: tuple[float, ...]
    counts: tuple[float, ...]

    @property
    def total(self) -> float:
        """How many there were."""
        return self.counts[-1]

    def since(self, before: LatencyCounts) -> LatencyCounts | None:
        """What has been counted since; ``None`` where the counts restarted or have other ranges."""
        if self.edges != before.edges:
            return None
        passed = tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))
        return None if min(passed) < 0.0 else LatencyCounts(self.edges, passed)

    def quantile(self, share: float) -> float | None:
        """The value that a share does not exceed, interpolated within its range; ``None`` where nothing was counted.

        Infinite beyond the last finite end, where nothing is known but that.
        """
        if self.total <= 0.0:
            return None
        rank = share * self.total
        at = min(bisect_left(self.counts, rank), len(self.counts) - 1)
        if math.isinf(self.edges[at]):
            return math.inf
        low, below = (self.edges[at - 1], self.counts[at - 1]) if at else (0.0, 0.0)
        inside = self.counts[at] - below
        return low + (self.edges[at] - low) * ((rank - below) / inside if inside > 0.0 else 1.0)


def counts_of(samples: Iterable[Sample]) -> LatencyCounts | None:
    """The histogram that samples of ``*_bucket`` series make up, added over engines; ``None`` where it is none."""
    by_edge: defaultdict[float, float] = defaultdict(float)
    for sample in samples:
        try:
            edge = float(sample.labels["le"])
        except (KeyError, ValueError):
            return None
        if not 0.0 <= sample.value < math.inf or math.isnan(edge):
            return None
        by_edge[edge] += sample.value
    edges = tuple(sorted(by_edge))
    if not edges or not math.isinf(edges[-1]):
        return None
    counts = tuple(by_edge[edge] for edge in edges)
    return LatencyCounts(edges, counts) if all(low <= high for low, high in pairwise(counts)) else None


Quantity = Literal[
    "running", "waiting", "cache_used", "prompt_tokens", "output_tokens", "preemptions", "cached_tokens", "looked_up_tokens"
]

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
    "preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"),
    "cached_tokens": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", "sglang:cached_tokens_total"),
    "looked_up_tokens": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
}  # fmt: skip
"""By what names servers have a quantity; the first that is there counts."""

_TTFT: Final = tuple(f"{stem}time_to_first_token_seconds" for stem in ("vllm:", "sglang:", "trtllm_"))
_TBT: Final = (
    "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds", "sglang:inter_token_latency_seconds",
    "sglang:time_per_output_token_seconds", "trtllm_time_per_output_token_seconds",
)  # fmt: skip
_PROMPTS: Final = ("vllm:request_prompt_tokens", "sglang:prompt_tokens_histogram")
_CACHE: Final = "vllm:cache_config_info"
_CACHE_TOKENS: Final = "sglang:max_total_num_tokens"
_MOST_COUNT: Final = 2.0**53  # beyond it a float cannot count

METRIC_NAMES: Final = tuple(
    dict.fromkeys(
        [name.partition("{")[0] for names in NAMES.values() for name in names]
        + [f"{name}_bucket" for name in (*_TTFT, *_TBT, *_PROMPTS)]
        + [_CACHE, _CACHE_TOKENS]
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
    series = by_name(found)
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
        cache_tokens=_cache_tokens(series),
        ttft=_counts(series, _TTFT),
        tbt=_counts(series, _TBT),
        prompts=_counts(series, _PROMPTS),
        prompt_tokens=_counter(series, "prompt_tokens"),
        output_tokens=_counter(series, "output_tokens"),
    )


def by_name(found: Iterable[Sample]) -> Mapping[str, list[Sample]]:
    """Samples by the name of their series."""
    series: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in found:
        series[sample.name].append(sample)
    return {name: _once(samples) for name, samples in series.items()}


_SHARING_RANKS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})


def _once(found: list[Sample]) -> list[Sample]:
    """Samples without what SGLang says more than once: of the ranks that share an engine's work, and by priority.

    The total of all priorities has an empty label, or none once Prometheus has kept it.
    """
    found = [each for each in found if not each.labels.get("priority")] or found
    if not any(_SHARING_RANKS & each.labels.keys() for each in found):
        return found
    of: dict[frozenset[tuple[str, str]], Sample] = {}
    for each in found:
        of.setdefault(frozenset((name, value) for name, value in each.labels.items() if name not in _SHARING_RANKS), each)
    return list(of.values())


def named_values(series: Mapping[str, list[Sample]], quantity: Quantity) -> tuple[str, list[float]]:
    """The first name of a quantity that a server has, and the values of all engines; none where it has no such name."""
    for full in NAMES[quantity]:
        name, _, label = full.partition("{")
        key, _, wanted = label.rstrip("}").partition("=")
        values = [each.value for each in series.get(name, ()) if not key or each.labels.get(key) == wanted.strip('"')]
        if values:
            return full, values
    return "", []


def _gauge(series: Mapping[str, list[Sample]], quantity: Quantity) -> list[float] | None:
    """The values of all engines, none of which is negative or beyond what a counter can hold."""
    name, values = named_values(series, quantity)
    for value in values:
        if not 0.0 <= value <= _MOST_COUNT:
            raise ServerError(f"{name.partition('{')[0]} is {value:g}")
    return values or None


def _counter(series: Mapping[str, list[Sample]], quantity: Quantity) -> float | None:
    values = _gauge(series, quantity)
    return None if values is None else sum(values)


def _counts(series: Mapping[str, list[Sample]], names: tuple[str, ...]) -> LatencyCounts | None:
    for name in names:
        buckets = series.get(f"{name}_bucket")
        if buckets:
            return counts_of(buckets)
    return None


def _cache_tokens(series: Mapping[str, list[Sample]]) -> float | None:
    for sample in series.get(_CACHE, ()):
        try:
            return float(sample.labels["num_gpu_blocks"]) * float(sample.labels["block_size"])
        except (KeyError, ValueError):
            continue
    return next((each.value for each in series.get(_CACHE_TOKENS, ()) if 0.0 < each.value < math.inf), None)
