"""What a policy that keeps deadlines first can say before a run: how much load it takes, and what not even all GPUs keep."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wastenot.serving.cluster.classes import COUNT, class_of
from wastenot.serving.cluster.controllers.fixed import Fixed, Placed
from wastenot.serving.cluster.model import Cluster
from wastenot.serving.cluster.results import tally_of
from wastenot.serving.cluster.scenario_load import Known
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.model.requests import Requests

ROOM = 1.5
"""Times the busiest five minutes known that are to be kept for a run to begin without a warning."""
_LEAST = 1 / 16
"""Of the load of independent requests, the least that is looked at."""
_HALVINGS = 5
"""Of the range in which the load is looked for: to 9 % of it."""


@dataclass(frozen=True, slots=True)
class Beforehand:
    """Said before the first request comes.

    Attributes:
        keeps_per_s: requests/s up to which the deadlines are met: of lengths like those known, independent of one another.
        bursty_per_s: the same of requests that come as those known did, faster or slower, with all GPUs at the maximum
            clock; 0 where not even a sixteenth of it is kept, ``None`` where only counts are known.
        warns: whether that is less than :data:`ROOM` times the busiest five minutes known.
    """

    keeps_per_s: float
    bursty_per_s: float | None
    warns: bool


def beforehand(cluster: Cluster, layout: int, keeps_per_s: float, known: Known) -> Beforehand:
    """With instances of a layout."""
    if known.forecast is not None or not len(known.lengths):
        return Beforehand(keeps_per_s, None, warns=False)
    bursty_per_s = _bursty_per_s(cluster, layout, keeps_per_s, known)
    return Beforehand(keeps_per_s, bursty_per_s, warns=bursty_per_s < ROOM * float(known.busiest_per_s.sum()))


def _bursty_per_s(cluster: Cluster, layout: int, most_per_s: float, known: Known) -> float:
    """The greatest rate at which the requests known are kept, their gaps shortened or stretched; at most the given one."""
    every = Fixed("all GPUs", (Placed(0, layout, cluster.most(layout)),), ((0,),) * COUNT, by_tokens=True)
    rate_per_s = float(known.mean_per_s.sum())

    def kept(at_per_s: float) -> bool:
        faster = replace(known.lengths, arrival_s=known.lengths.arrival_s * (rate_per_s / at_per_s))
        return _kept(faster, cluster, every)

    low, high = most_per_s * _LEAST, most_per_s
    if kept(high):
        return high
    if not kept(low):
        return 0.0
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


def _kept(requests: Requests, cluster: Cluster, plan: Fixed) -> bool:
    """Whether no class misses more than it may by over a standard deviation: there are few requests."""
    served = simulate_cluster(requests, cluster, plan)
    kept = tally_of(served, requests, cluster).by_class()
    number = class_of(requests.prompt_tokens, requests.output_tokens)
    came = np.bincount(number, minlength=COUNT)
    allowed = (1 - cluster.deadlines.share) * came
    return bool(((1 - np.nan_to_num(kept, nan=1.0)) * came <= allowed + np.sqrt(allowed) + 1).all())
