"""What a pipeline of the same work would save in another shape: other micro-batches, other stages, other imbalance.

More micro-batches make the bubbles of the beginning and the end a smaller fraction of an iteration; more stages a larger
one; and a stage that is longer than the others makes all of them wait. Nothing of this is measured: the numbers of a
profile are put together in other ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.errors import InfeasibleError
from wastenot.frontiers.algebra import Frontier, choice
from wastenot.frontiers.graph_rounding import Effort
from wastenot.pipelines.model.iteration_graph import baseline_of, pipeline_graph
from wastenot.pipelines.model.profile import PipelineProfile, listed_ways
from wastenot.pipelines.model.schedule import PipelineSchedule
from wastenot.pipelines.model.schedules import SCHEDULES, build_schedule
from wastenot.pipelines.plan.planner import total_j

_MICRO_BATCHES = (2, 4, 8, 16, 32)
_IMBALANCES = (0.0, 0.1, 0.2, 0.3, 0.5)
_MOST_MICRO_BATCHES = 12  # where something else is varied
_MOST_INSTRUCTIONS = 2_000  # of a shape, to be quick
_EFFORT = Effort(steps=2_000)  # about a third of a second


@dataclass(frozen=True, slots=True)
class Saving:
    """What the plan of no slowdown saves in one shape.

    Attributes:
        value: of what is varied.
        saved: energy, as a fraction of that at the default clocks.
        own: whether the profile is so by itself.
    """

    value: float
    saved: float
    own: bool = False


@dataclass(frozen=True, slots=True)
class Savings:
    """What is saved by shape, each with all else as it is.

    Attributes:
        micro_batches: by number of micro-batches.
        stages: by number of stages, neighbours merged, at ``at_micro_batches``.
        imbalance: by how much longer the last stage is than the mean, at ``at_micro_batches``; all the others are equal.
        at_micro_batches: of the latter two.
    """

    micro_batches: tuple[Saving, ...]
    stages: tuple[Saving, ...]
    imbalance: tuple[Saving, ...]
    at_micro_batches: int


def savings_by_shape(profile: PipelineProfile, schedule: PipelineSchedule) -> Savings:
    """Plan other shapes of a pipeline; takes seconds.

    Args:
        profile: of its stages.
        schedule: that it runs. Shapes that it has not by its name, such as those of a schedule of one's own, are left out;
            all are where forwards and backwards run at once, as the profile has the times of this shape's pairs alone.
    """
    if any(each.beside is not None for each in schedule.instructions):
        return Savings((), (), (), schedule.micro_batches)
    ranks, named = len(schedule.ranks), schedule.name in SCHEDULES
    chunks = schedule.stages // ranks
    few = min(schedule.micro_batches, _MOST_MICRO_BATCHES)

    def shaped(stages: int, micro_batches: int) -> PipelineSchedule:
        own = chunks if schedule.name == "interleaved" else None
        return build_schedule(schedule.name, ranks=stages // chunks, micro_batches=micro_batches, chunks=own)

    at = shaped(schedule.stages, few) if named else schedule
    counts = sorted({*_MICRO_BATCHES, schedule.micro_batches}) if named else []
    merged = _divisors(schedule.stages, chunks) if named else []
    return Savings(
        tuple(
            Saving(count, saved, count == schedule.micro_batches)
            for count in counts
            for saved in _saved(profile, shaped(schedule.stages, count))
        ),
        tuple(
            Saving(schedule.stages // of_one, saved, of_one == 1)
            for of_one in merged
            for saved in _saved(merged_stages(profile, of_one), shaped(schedule.stages // of_one, few))
        ),
        tuple(Saving(longer, saved) for longer in _IMBALANCES for saved in _saved(with_last_stage(profile, longer), at)),
        at.micro_batches,
    )


def _saved(profile: PipelineProfile | None, schedule: PipelineSchedule) -> list[float]:
    """What the plan of no slowdown saves; nothing where there is no plan, or none soon."""
    if profile is None or len(schedule.instructions) > _MOST_INSTRUCTIONS:
        return []
    baseline = baseline_of(schedule, profile)
    try:
        solved = pipeline_graph(schedule, profile).least_energy(baseline.exact_time_s, effort=_EFFORT)
    except InfeasibleError:
        return []
    return [1.0 - total_j(profile, schedule, solved) / total_j(profile, schedule, baseline)]


def _divisors(stages: int, chunks: int) -> Sequence[int]:
    """How many neighbours can be merged into one so that two stages at least are left on two ranks."""
    return [each for each in range(stages // 2, 0, -1) if stages % each == 0 and stages // each >= 2 * chunks]


def merged_stages(profile: PipelineProfile, of_one: int) -> PipelineProfile | None:
    """The profile with ``of_one`` neighbouring stages as one, at one setting; ``None`` if they have none in common."""
    if of_one == 1:
        return profile
    ways: dict[tuple[int, str], list[dict[object, tuple[float, float]]]] = {}
    baseline: dict[tuple[int, str], tuple[float, float]] = {}
    for (stage, name), frontier in profile.ways.items():
        key = stage // of_one, name
        ways.setdefault(key, []).append({label: (time_s, energy_j) for time_s, energy_j, label in listed_ways(frontier)})
        before_s, before_j = baseline.get(key, (0.0, 0.0))
        time_s, energy_j = profile.baseline[stage, name]
        baseline[key] = before_s + time_s, before_j + energy_j
    joined: dict[tuple[int, str], Frontier] = {}
    for key, several in ways.items():
        shared = [label for label in several[0] if all(label in each for each in several)]
        if not shared:
            return None
        joined[key] = choice([(*np.sum([each[label] for each in several], axis=0).tolist(), label) for label in shared])
    fixed = {key: each for key, each in profile.fixed.items() if key[0] < profile.stages // of_one}
    return replace(profile, ways=joined, baseline=baseline, fixed=fixed)


def with_last_stage(profile: PipelineProfile, longer: float) -> PipelineProfile:
    """The profile with equal stages, but for the last, which takes longer than the mean by a fraction; the work is the same.

    Times and energies of a stage are scaled alike, at all clocks.
    """
    stages = profile.stages
    took = np.zeros(stages)
    for (stage, _), (time_s, _) in profile.baseline.items():
        took[stage] += time_s
    wanted = np.full(stages, took.mean())
    if stages > 1:
        wanted *= (stages - 1.0 - longer) / (stages - 1.0)
        wanted[-1] = took.mean() * (1.0 + longer)
    scale = (wanted / took).tolist()
    return replace(
        profile,
        ways={
            (stage, name): choice([(scale[stage] * time_s, scale[stage] * energy_j, label)
                                   for time_s, energy_j, label in listed_ways(frontier)])
            for (stage, name), frontier in profile.ways.items()
        },
        baseline={
            (stage, name): (scale[stage] * time_s, scale[stage] * energy_j)
            for (stage, name), (time_s, energy_j) in profile.baseline.items()
        },
    )  # fmt: skip
