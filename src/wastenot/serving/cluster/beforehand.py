"""What a policy that keeps deadlines first can say before a run: how much load it takes, and what not even all GPUs keep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.controllers.fixed import Fixed, Placed
from wastenot.serving.cluster.model import Cluster
from wastenot.serving.cluster.results import tally_of
from wastenot.serving.cluster.scenario_load import Known
from wastenot.serving.cluster.simulation.simulate import simulate_cluster


@dataclass(frozen=True, slots=True)
class Beforehand:
    """Said before the first request comes.

    Attributes:
        keeps_per_s: requests/s up to which the deadlines are met: of lengths like those known, independent of one another.
        known_worst_class: of the requests known, the fraction of the worst class that meets the deadlines with all GPUs at
            the maximum clock; ``None`` where only their counts are known.
    """

    keeps_per_s: float
    known_worst_class: float | None


def beforehand(cluster: Cluster, layout: int, keeps_per_s: float, known: Known) -> Beforehand:
    """With instances of a layout."""
    if known.forecast is not None or not len(known.lengths):
        return Beforehand(keeps_per_s, None)
    every = Fixed("all GPUs", (Placed(0, layout, cluster.most(layout)),), ((0,),) * COUNT, by_tokens=True)
    by_class = tally_of(simulate_cluster(known.lengths, cluster, every), known.lengths, cluster).by_class()
    return Beforehand(keeps_per_s, float(np.nanmin(by_class)))
