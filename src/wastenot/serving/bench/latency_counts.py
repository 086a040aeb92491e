"""Latencies or lengths as a server counts them by range: Prometheus' histograms, and what is counted between two."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from wastenot.serving.bench.metric_samples import Sample


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
        """What has been counted since; ``None`` where the counts began anew or have other ranges."""
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
