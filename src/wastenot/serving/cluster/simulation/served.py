"""What came of a simulated cluster: energy by its use, and a timeline."""

from __future__ import annotations

import math

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.serving.cluster import classes
from wastenot.serving.cluster.model import ClusterServed, ClusterTimeline, InstanceState as State
from wastenot.serving.cluster.simulation import records
from wastenot.serving.cluster.simulation.fleet import Fleet
from wastenot.serving.cluster.simulation.records import values_of

_CHANGING = (State.STARTING, State.WAKING, State.RESHARDING)


def cluster_served(
    fleet: Fleet, name: str, arrivals: IndexArray, missed: IndexArray, bin_s: float, end_s: float
) -> ClusterServed:
    """What came of a run that has ended, but for its arrays by request.

    Args:
        fleet: of the cluster.
        name: of the controller.
        arrivals: requests by bin of time and class, one after the other.
        missed: those that missed a deadline, likewise.
        bin_s: width of the timeline's bins.
        end_s: of the run.
    """
    cluster, numbers, changes = fleet.cluster, fleet.numbers, fleet.cluster.changes
    bins = max(math.ceil(end_s / bin_s), 1)
    edges_s = np.minimum(np.arange(bins + 1) * bin_s, end_s)
    gpus = np.stack([fleet.spans[state].over(edges_s) for state in State], axis=1)
    gpus[:, State.OFF] = cluster.gpus * np.diff(edges_s) - gpus[:, 1:].sum(axis=1)
    used = {
        "parked": changes.parked_power_w * gpus[:, State.PARKED],
        "changing": changes.start_power_w * gpus[:, _CHANGING].sum(axis=1),
        "off": changes.off_power_w * gpus[:, State.OFF],
        "hosts": changes.host_power_w * fleet.host_spans.over(edges_s),
    }
    energy_j = {kind: float(getattr(numbers, f"{kind}_j")) for kind in records.KINDS}
    energy_j |= {kind: float(each.sum()) for kind, each in used.items()}
    none, never = np.zeros(0, dtype=np.intp), np.zeros(0)
    return ClusterServed(
        name,
        none,
        never,
        never,
        never,
        none,
        end_s,
        energy_j,
        np.asarray(fleet.arrays.gap_counts, dtype=np.intp),
        int(numbers.switches),
        _timeline(fleet, arrivals, missed, edges_s, gpus, sum(used.values(), np.zeros(bins)), bin_s),
        fleet.log,
    )


def _timeline(
    fleet: Fleet, arrivals: IndexArray, missed: IndexArray, edges_s: FloatArray, gpus: FloatArray, used_j: FloatArray,
    bin_s: float,
) -> ClusterTimeline:  # fmt: skip
    arrays, bins = fleet.arrays, len(used_j)
    width_s = np.diff(edges_s)
    lasted_s = np.where(width_s > 0, width_s, 1.0)
    energy_j = used_j.copy()
    drawn_j, clock = values_of(arrays.bins, "energy_j"), values_of(arrays.bins, "clock")
    energy_j += drawn_j[:bins]
    energy_j[-1] += drawn_j[bins:].sum()  # rounded into the bin after the end
    at_work = gpus[:, State.SERVING] + gpus[:, State.DRAINING]

    def by_class(counts: IndexArray) -> IndexArray:
        whole = np.zeros((bins, classes.COUNT), dtype=np.intp)
        rows = counts[: len(counts) // classes.COUNT * classes.COUNT].reshape(-1, classes.COUNT)
        whole[: len(rows)] += rows[:bins]
        whole[-1] += rows[bins:].sum(axis=0)  # rounded into the bin after the end
        return whole

    return ClusterTimeline(
        bin_s,
        energy_j,
        gpus / lasted_s[:, None],
        np.stack([each.over(edges_s) for each in fleet.serving], axis=1) / lasted_s[:, None],
        np.divide(clock[:bins], at_work, out=np.full(bins, math.nan), where=at_work > 0),
        by_class(arrivals),
        by_class(missed),
    )
