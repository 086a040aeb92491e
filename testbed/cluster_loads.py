"""Loads of scenarios all at once, runs of them in numbers, and what the oracle's fractional instances would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.model import Cluster, ClusterServed, Failure
from wastenot.serving.cluster.pools import PARTITIONS
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.cluster.results import gpu_hours, power_percentiles_w, tally_of
from wastenot.serving.cluster.scenario import Scenario
from wastenot.serving.cluster.scenario_file import TrafficPart
from wastenot.serving.cluster.scenario_load import PART_S, Known, load_parts_of
from wastenot.serving.model.requests import Requests, joined


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What is served in a run.

    Attributes:
        requests: to serve.
        duration_s: in which they come.
        known: beforehand.
        predicted_tokens: lengths of answers as router and policies are told; ``None`` for the true ones.
        failures: of hosts.
        begin_s: of what is served, since its trace or curve began.
    """

    requests: Requests
    duration_s: float
    known: Known
    predicted_tokens: FloatArray | None
    failures: tuple[Failure, ...]
    begin_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class ClusterResult:
    """A run of a whole load in numbers; those of :class:`~wastenot.serving.cluster.run_record.RunRecord`."""

    energy_j: float
    attainment: float
    by_class: FloatArray
    power_w: tuple[float, float]
    instances: FloatArray
    gpu_hours: float

    @property
    def failed(self) -> bool:
        """Whether a class missed its share of 99 %."""
        return bool(np.nanmin(self.by_class) < 0.99)


def result_of(served: ClusterServed, requests: Requests, cluster: Cluster) -> ClusterResult:
    """The numbers of a run."""
    tally, timeline = tally_of(served, requests, cluster), served.timeline
    return ClusterResult(
        served.total_energy_j, tally.attainment, tally.by_class(), power_percentiles_w(timeline),
        timeline.instances.mean(axis=0), gpu_hours(timeline),
    )  # fmt: skip


def load_of(scenario: Scenario, traffic: TrafficPart, seed: int) -> Load:
    """The load of one of a scenario's traffics with one seed, all of it at once.

    Raises:
        BadInputError: a trace is too short for its history, or nothing comes after it.
    """
    drawn = load_parts_of(scenario, traffic, seed)
    parts = list(drawn.parts(PART_S))
    requests = joined([each for each, _ in parts])
    told = None if drawn.predictor is None else np.concatenate([each for _, each in parts if each is not None])
    return Load(requests, drawn.duration_s, drawn.known, told, drawn.failures, drawn.begin_s)


def slot_estimate(
    profiles: Profiles,
    counts: FloatArray,
    *,
    partitions: Sequence[tuple[tuple[int, ...], ...]] = PARTITIONS,
) -> float:
    """Joules with perfect knowledge, no cost of change, and as many parts of instances as wanted; no bound.

    In each slot of time the classes are served by any fractional number of instances at the rate and fixed clock of least
    energy a request that keep the deadlines, in the partition into pools that costs least. Clocks that follow the batch can
    do better; whole instances, changes, and what is not known ahead do worse.

    Args:
        profiles: of the cluster, with the lengths of the very load for perfect knowledge.
        counts: requests by slot of time and class; shape (slots, 9).
        partitions: of the classes into pools, to choose from in each slot.
    """
    return float(sum(_slot(profiles, slot, partitions) for slot in np.asarray(counts, dtype=np.float64)))


def _slot(profiles: Profiles, count: FloatArray, partitions: Sequence[tuple[tuple[int, ...], ...]]) -> float:
    if not count.sum():
        return 0.0
    costs = []
    for partition in partitions:
        cost_j = 0.0
        for classes in partition:
            own = np.where(np.isin(np.arange(COUNT), classes), count, 0.0)
            if own.sum():
                cost_j += own.sum() * _request_j(profiles, own)
        costs.append(cost_j)
    return float(min(costs))


def _request_j(profiles: Profiles, count: FloatArray) -> float:
    """The least energy of a request of these classes on any layout, at any rate and clock that keep the deadlines."""
    least = np.inf
    for layout in range(len(profiles.cluster.layouts)):
        for ladders in (False, True):
            known = profiles.frontier(layout, count, together=4, ladders=ladders)
            if len(known.rate_per_s):
                least = min(least, float((known.power_w / known.rate_per_s).min()))
    return least
