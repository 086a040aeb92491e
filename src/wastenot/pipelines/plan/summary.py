"""What a pipeline's plan says of its stages: clocks, time at work, what is critical and what is saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import BoolArray
from wastenot.pipelines.plan.plan import Way
from wastenot.pipelines.plan.planner import PlannedPipeline


@dataclass(frozen=True, slots=True)
class StageSummary:
    """A stage under a plan.

    Attributes:
        stage: of the model.
        rank: that it is on; the first one, where micro-batches go both ways and each stage is on two.
        core_mhz: by instruction, the lowest and the highest core clock over micro-batches and kernels; ``None`` is auto.
        busy: part of the iteration in which its instructions run; those that run a backward at once are the forward's.
        critical: part of its instructions that are on a critical path.
        energy_change: of its instructions, waiting apart, relative to the baseline.
        slower: time of its instructions relative to the baseline, less 1.
    """

    stage: int
    rank: int
    core_mhz: Mapping[str, tuple[float | None, float | None]]
    busy: float
    critical: float
    energy_change: float
    slower: float


def stages_of(made: PlannedPipeline) -> tuple[StageSummary, ...]:
    """Each stage of a plan."""
    instructions, rank = made.schedule.instructions, made.schedule.rank
    count = len(instructions)
    ways = [made.plan.ways[way] for each in made.plan.ranks for way, _ in each.instructions]
    stage = np.array([each.stage for each in instructions], dtype=np.intp)
    times = np.array([way.time_s for way in ways]), np.array([made.profile.baseline[_key(way)][0] for way in ways])
    energies = np.array([way.energy_j for way in ways]), np.array([made.profile.baseline[_key(way)][1] for way in ways])
    critical: BoolArray = made.solved.critical[:count]
    found = []
    for number in range(made.schedule.stages):
        own = stage == number
        names = dict.fromkeys(instructions[index].name for index in np.flatnonzero(own).tolist())
        found.append(
            StageSummary(
                number,
                int(rank[own][0]),
                {
                    name: _clocks([ways[at] for at in np.flatnonzero(own).tolist() if ways[at].instruction == name])
                    for name in names
                },
                float(times[0][own].sum() / made.solved.time_s / len(set(rank[own].tolist()))),
                float(critical[own].mean()),
                float(energies[0][own].sum() / energies[1][own].sum() - 1.0),
                float(times[0][own].sum() / times[1][own].sum() - 1.0),
            )
        )
    return tuple(found)


def _key(way: Way) -> tuple[int, str]:
    return way.stage, way.instruction


def _clocks(ways: Sequence[Way]) -> tuple[float | None, float | None]:
    """Lowest and highest core clock; auto counts as the highest there is."""
    clocks = [each.core_mhz for way in ways for each in way.clocks]
    order = sorted(clocks, key=lambda clock: float("inf") if clock is None else clock)
    return order[0], order[-1]
