"""A run of a cluster in the numbers that policies are compared by: energy, and what requests had to wait."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.serving.cluster.classes import COUNT, class_of
from wastenot.serving.cluster.model import Cluster, ClusterServed, ClusterTimeline, InstanceState
from wastenot.serving.cluster.simulation.simulate import Answers
from wastenot.serving.model.requests import Requests


@dataclass(frozen=True, slots=True)
class Work:
    """What a load asks for, whenever it comes; may be added up over its parts.

    Attributes:
        requests: how many.
        prompts: tokens to prefill.
        answers: tokens to decode.
        contexts: tokens in the cache, summed over those to decode.
    """

    requests: int = 0
    prompts: float = 0.0
    answers: float = 0.0
    contexts: float = 0.0

    @classmethod
    def of(cls, requests: Requests) -> Work:
        """Of requests."""
        more = (requests.output_tokens - 1).astype(np.float64)
        cached = 0 if requests.cached_tokens is None else requests.cached_tokens.sum()
        contexts = float(more @ (requests.prompt_tokens + requests.output_tokens / 2))
        return cls(len(requests), float(requests.prompt_tokens.sum() - cached), float(more.sum()), contexts)

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


_WAITS_S = np.geomspace(1e-4, 1e4, 8001)
"""Edges of the bins in which waits for first tokens are counted: 0.23 % apart."""


class Tally:
    """What became of a load, added up over its parts.

    Attributes:
        work: that was asked for.
        unanswered: requests that were given up.
        prompt_tokens: of all.
        cached_tokens: of those, the ones that were in a cache of prefixes.
        output_tokens: of those that were answered.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.work = Work()
        self.unanswered = self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self._cluster = cluster
        self._count, self._good = np.zeros(COUNT, dtype=np.intp), np.zeros(COUNT, dtype=np.intp)
        self._waited = np.zeros((len(cluster.deadlines.ttft_s), len(_WAITS_S) + 1), dtype=np.intp)

    def add(self, requests: Requests, answers: Answers | ClusterServed) -> None:
        """Some requests, and what became of them."""
        number = class_of(requests.prompt_tokens, requests.output_tokens)
        answered = np.isfinite(answers.finish_s)
        self.work += Work.of(requests)
        self.unanswered += int((~answered).sum())
        self.prompt_tokens += int(requests.prompt_tokens.sum())
        self.cached_tokens += 0 if requests.cached_tokens is None else int(requests.cached_tokens.sum())
        self.output_tokens += int(requests.output_tokens[answered].sum())
        self._count += np.bincount(number, minlength=COUNT)
        self._good += np.bincount(number[self._cluster.deadlines.kept(requests, answers)], minlength=COUNT)
        kind = np.searchsorted(self._cluster.deadlines.prompt_below, requests.prompt_tokens, side="right")
        waited_s = np.where(np.isfinite(answers.first_token_s), answers.first_token_s - requests.arrival_s, np.inf)
        at = kind * self._waited.shape[1] + np.searchsorted(_WAITS_S, waited_s)
        self._waited += np.bincount(at, minlength=self._waited.size).reshape(self._waited.shape)

    @property
    def attainment(self) -> float:
        """Share of all requests that kept their deadlines; ``nan`` where there are none."""
        return float(self._good.sum() / self._count.sum()) if self._count.any() else float("nan")

    def by_class(self) -> FloatArray:
        """The same of each class, ``nan`` where it has no requests; shape (9,)."""
        return np.where(self._count > 0, self._good / np.maximum(self._count, 1), np.nan)

    def ttft_p99_s(self) -> FloatArray:
        """99th percentile of the time to the first token, of each class of prompts, to 0.23 %; shape (classes,)."""
        return np.array([_p99(counts, _WAITS_S) for counts in self._waited])


def power_percentiles_w(timeline: ClusterTimeline) -> tuple[float, float]:
    """50th and 99th percentile of the power over bins of a run."""
    power = timeline.energy_j / timeline.bin_s
    power = power[:-1] if len(power) > 1 else power  # the last bin is not full
    return float(np.percentile(power, 50)), float(np.percentile(power, 99))


def gpu_hours(timeline: ClusterTimeline) -> float:
    """Of GPUs that were not off."""
    used = timeline.gpus.sum() - timeline.gpus[:, [InstanceState.OFF, InstanceState.FAILED]].sum()
    return float(used) * timeline.bin_s / 3600.0


def tally_of(answers: Answers | ClusterServed, requests: Requests, cluster: Cluster) -> Tally:
    """Of a load that is there as a whole."""
    tally = Tally(cluster)
    tally.add(requests, answers)
    return tally


def _p99(counts: IndexArray, edges: FloatArray) -> float:
    """From a histogram: the upper edge of the bin; inf beyond the last, NaN where there are none."""
    total = np.cumsum(counts)
    if not total[-1]:
        return math.nan
    return float(np.append(edges, math.inf)[np.searchsorted(total, 0.99 * total[-1])])
