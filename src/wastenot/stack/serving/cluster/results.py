"""A run of a cluster in the numbers that policies are compared by: energy, and what requests had to wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.arrays import BoolArray, FloatArray
from wastenot.stack.serving.cluster.classes import COUNT
from wastenot.stack.serving.cluster.model import Cluster, ClusterServed, InstanceState
from wastenot.stack.serving.requests import Requests
from wastenot.stack.serving.simulation.served import GAP_EDGES_S


@dataclass(frozen=True, slots=True, eq=False)
class ClusterResult:
    """One policy on one load.

    Attributes:
        policy: its name.
        energy_j: of the run.
        attainment: share of all requests that kept their deadlines.
        by_class: the same of each class, ``nan`` where it has no requests; shape (9,).
        ttft_p99_s: 99th percentile of the time to the first token, of each class of prompts; shape (3,).
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


def kept(served: ClusterServed, requests: Requests, cluster: Cluster) -> BoolArray:
    """Whether each request kept all of its deadlines; those that were never answered did not; shape (requests,)."""
    deadlines = cluster.deadlines
    good = served.first_token_s - requests.arrival_s <= deadlines.ttft_of(requests.prompt_tokens)
    good &= served.late_tokens <= (1 - deadlines.share) * (requests.output_tokens - 1)
    if deadlines.end_to_end_s is not None:
        good &= served.finish_s - requests.arrival_s <= deadlines.end_to_end_s
    return np.asarray(good & np.isfinite(served.finish_s))


def attainment_by_class(served: ClusterServed, requests: Requests, cluster: Cluster) -> FloatArray:
    """Share of the requests of each class that kept their deadlines, ``nan`` where there are none; shape (9,)."""
    number = cluster.classes.of(requests.prompt_tokens, requests.output_tokens)
    count = np.bincount(number, minlength=COUNT).astype(np.float64)
    good = np.bincount(number, weights=kept(served, requests, cluster), minlength=COUNT)
    return np.where(count > 0, good / np.maximum(count, 1.0), np.nan)


def result_of(served: ClusterServed, requests: Requests, cluster: Cluster, *, share: float = 0.99) -> ClusterResult:
    """The numbers of a run.

    Args:
        served: the run.
        requests: that were served.
        cluster: that served them.
        share: of the requests of each class that are to keep their deadlines.
    """
    by_class = attainment_by_class(served, requests, cluster)
    kind = np.searchsorted(cluster.deadlines.prompt_below, requests.prompt_tokens, side="right")
    waited_s = np.where(np.isfinite(served.first_token_s), served.first_token_s - requests.arrival_s, np.inf)
    timeline = served.timeline
    power = timeline.energy_j / timeline.bin_s
    power = power[:-1] if len(power) > 1 else power  # the last bin is not full
    used = timeline.gpus.sum() - timeline.gpus[:, [InstanceState.OFF, InstanceState.FAILED]].sum()
    return ClusterResult(
        served.name,
        served.total_energy_j,
        float(kept(served, requests, cluster).mean()),
        by_class,
        np.array([_p99(waited_s[kind == each]) for each in range(len(cluster.deadlines.ttft_s))]),
        _p99_of_gaps(served),
        (float(np.percentile(power, 50)), float(np.percentile(power, 99))),
        timeline.instances.mean(axis=0),
        float(used) * timeline.bin_s / 3600.0,
        bool(np.nanmin(by_class) < share),
    )


def _p99(values: FloatArray) -> float:
    return float(np.percentile(values, 99, method="higher")) if len(values) else float("nan")


def _p99_of_gaps(served: ClusterServed) -> float:
    """From the histogram: the upper edge of the bin."""
    total = np.cumsum(served.gap_counts)
    if not total[-1]:
        return 0.0
    at = int(np.searchsorted(total, 0.99 * total[-1]))
    return float(GAP_EDGES_S[min(at, len(GAP_EDGES_S) - 1)])
