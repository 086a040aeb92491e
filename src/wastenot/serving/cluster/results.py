"""A run of a cluster in the numbers that policies are compared by: energy, and what requests had to wait."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.model import Cluster, ClusterServed, InstanceState
from wastenot.serving.cluster.simulation.simulate import Answers
from wastenot.serving.cluster.work import Work
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.served import GAP_EDGES_S

_WAITS_S = np.geomspace(1e-4, 1e4, 8001)
"""Edges of the bins in which waits for first tokens are counted: 0.23 % apart."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterResult:
    """One policy on one load.

    Attributes:
        policy: its name.
        energy_j: of the run.
        attainment: share of all requests that kept their deadlines.
        by_class: the same of each class, ``nan`` where it has no requests; shape (9,).
        ttft_p99_s: 99th percentile of the time to the first token, of each class of prompts, to 0.23 %; shape (3,).
        tbt_p99_s: 99th percentile of the time between tokens.
        power_w: 50th and 99th percentile over bins of the timeline.
        instances: that served, by layout, on average; shape (layouts,).
        gpu_hours: of GPUs that were not off.
        failed: whether a class missed its share.
    """

    policy: str
    energy_j: float
    attainment: float
    by_class: FloatArray
    ttft_p99_s: FloatArray
    tbt_p99_s: float
    power_w: tuple[float, float]
    instances: FloatArray
    gpu_hours: float
    failed: bool


def kept(answers: Answers | ClusterServed, requests: Requests, cluster: Cluster) -> BoolArray:
    """Whether each request kept all of its deadlines; those that were never answered did not; shape (requests,)."""
    deadlines = cluster.deadlines
    good = answers.first_token_s - requests.arrival_s <= deadlines.ttft_of(requests.prompt_tokens)
    good &= answers.late_tokens <= (1 - deadlines.share) * (requests.output_tokens - 1)
    if deadlines.end_to_end_s is not None:
        good &= answers.finish_s - requests.arrival_s <= deadlines.end_to_end_s
    return np.asarray(good & np.isfinite(answers.finish_s))


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
        number = self._cluster.classes.of(requests.prompt_tokens, requests.output_tokens)
        answered = np.isfinite(answers.finish_s)
        self.work += Work.of(requests)
        self.unanswered += int((~answered).sum())
        self.prompt_tokens += int(requests.prompt_tokens.sum())
        self.cached_tokens += 0 if requests.cached_tokens is None else int(requests.cached_tokens.sum())
        self.output_tokens += int(requests.output_tokens[answered].sum())
        self._count += np.bincount(number, minlength=COUNT)
        self._good += np.bincount(number[kept(answers, requests, self._cluster)], minlength=COUNT)
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

    def result(self, served: ClusterServed, *, share: float = 0.99) -> ClusterResult:
        """The numbers of a run.

        Args:
            served: the run, all of whose requests were added.
            share: of the requests of each class that are to keep their deadlines.
        """
        timeline = served.timeline
        power = timeline.energy_j / timeline.bin_s
        power = power[:-1] if len(power) > 1 else power  # the last bin is not full
        used = timeline.gpus.sum() - timeline.gpus[:, [InstanceState.OFF, InstanceState.FAILED]].sum()
        by_class = self.by_class()
        return ClusterResult(
            served.name,
            served.total_energy_j,
            self.attainment,
            by_class,
            np.array([_p99(counts, _WAITS_S) for counts in self._waited]),
            min(_p99(served.gap_counts, GAP_EDGES_S, nothing=0.0), float(GAP_EDGES_S[-1])),
            (float(np.percentile(power, 50)), float(np.percentile(power, 99))),
            timeline.instances.mean(axis=0),
            float(used) * timeline.bin_s / 3600.0,
            bool(np.nanmin(by_class) < share),
        )


def tally_of(answers: Answers | ClusterServed, requests: Requests, cluster: Cluster) -> Tally:
    """Of a load that is there as a whole."""
    tally = Tally(cluster)
    tally.add(requests, answers)
    return tally


def result_of(served: ClusterServed, requests: Requests, cluster: Cluster, *, share: float = 0.99) -> ClusterResult:
    """The numbers of a run of a load that is there as a whole; see :meth:`Tally.result`."""
    return tally_of(served, requests, cluster).result(served, share=share)


def _p99(counts: IndexArray, edges: FloatArray, nothing: float = math.nan) -> float:
    """From a histogram: the upper edge of the bin; inf beyond the last."""
    total = np.cumsum(counts)
    if not total[-1]:
        return nothing
    return float(np.append(edges, math.inf)[np.searchsorted(total, 0.99 * total[-1])])
