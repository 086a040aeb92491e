"""How many layers each stage of a pipeline gets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from wastenot.pipelines.model.iteration_graph import baseline_of, pipeline_graph
from wastenot.pipelines.model.profile import PipelineProfile
from wastenot.pipelines.model.schedule import PipelineSchedule

_SAME = 1e-9
_MOST_PARTITIONS = 600  # looked at, ...
_MOST_INSTRUCTIONS = 150_000  # ... and of all of them together; each of both takes about 10 s


def balanced(layers: int, stages: int, layer_s: float, first_s: float = 0.0, last_s: float = 0.0) -> tuple[int, ...]:
    """The partition whose slowest stage is fastest; of several, the first that is found.

    Args:
        layers: to give to stages, at least as many as there are stages.
        stages: to give them to.
        layer_s: time of a layer.
        first_s: what the first stage runs besides layers.
        last_s: what the last one runs besides them.

    Returns:
        Layers of each stage, one at least.
    """
    extra = [0.0] * stages
    extra[0] += first_s
    extra[-1] += last_s
    counts = [1] * stages
    # The stage that would be fastest with one layer more gets it: greedy is optimal, for a stage's time only grows.
    for _ in range(layers - stages):
        stage = min(range(stages), key=lambda each: (extra[each] + (counts[each] + 1) * layer_s, each))
        counts[stage] += 1
    return tuple(counts)


@dataclass(frozen=True, slots=True)
class PartitionSearch:
    """What a search over partitions found.

    Attributes:
        partition: layers of each stage.
        energy_j: that no plan of it needs less than, on one GPU of each rank.
        finished: whether every neighbour of the partition was looked at: none of them is better.
    """

    partition: tuple[int, ...]
    energy_j: float
    finished: bool


def least_energy_partition(
    first: Sequence[int],
    profile_of: Callable[[tuple[int, ...]], PipelineProfile],
    schedule: PipelineSchedule,
    *,
    max_slowdown: float = 0.0,
    most: int | None = None,
) -> PartitionSearch:
    """The partition whose plan needs least energy, of those that are as fast at the default clocks.

    Layers move one by one, from any stage to any other, for as long as that lowers the bound on the energy of a plan. What
    is slower at the default clocks than ``first`` is not looked at.

    Args:
        first: partition to begin with: a balanced one.
        profile_of: makes the profile of a partition.
        schedule: the order of instructions.
        max_slowdown: allowed, of an iteration at the default clocks.
        most: partitions that are looked at; by default as many as take about 10 s.
    """
    if most is None:
        most = min(_MOST_PARTITIONS, _MOST_INSTRUCTIONS // len(schedule.instructions))
    limit_s: float | None = None
    seen: dict[tuple[int, ...], float] = {}

    def energy_j(partition: tuple[int, ...]) -> float:
        nonlocal limit_s
        if partition not in seen:
            profile = profile_of(partition)
            default_s = baseline_of(schedule, profile).exact_time_s
            limit_s = float(default_s) * (1.0 + _SAME) if limit_s is None else limit_s
            seen[partition] = math.inf
            if default_s <= limit_s:
                graph = pipeline_graph(schedule, profile)
                within_s = max(default_s * (1 + Fraction(max_slowdown)), graph.least_time().exact_time_s)
                seen[partition] = graph.lower_bound_j(within_s)
        return seen[partition]

    best = tuple(first)
    energy_j(best)
    finished = False
    while not finished:
        finished = True
        for moved in _neighbours(best):
            if len(seen) >= most and moved not in seen:
                return PartitionSearch(best, seen[best], finished=False)
            if energy_j(moved) < seen[best] * (1.0 - _SAME):
                best, finished = moved, False
                break
    return PartitionSearch(best, seen[best], finished=True)


def _neighbours(partition: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every partition with one layer elsewhere."""
    for giver, taker in permutations(range(len(partition)), 2):
        if partition[giver] > 1:
            moved = list(partition)
            moved[giver] -= 1
            moved[taker] += 1
            yield tuple(moved)
