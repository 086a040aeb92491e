"""The graph of a pipeline's iteration: a schedule's instructions with a profile's ways."""

from __future__ import annotations

import numpy as np

from wastenot.errors import BadInputError
from wastenot.frontiers.graph import Graph
from wastenot.stack.pipeline.profile import PipelineProfile
from wastenot.stack.pipeline.schedule import PipelineSchedule


def pipeline_graph(schedule: PipelineSchedule, profile: PipelineProfile) -> Graph:
    """The parts are :attr:`PipelineSchedule.instructions`, the workers its ranks.

    Raises:
        BadInputError: the profile lacks an instruction of the schedule, or the schedule deadlocks.
    """
    keys = list(profile.ways)
    place = {key: index for index, key in enumerate(keys)}
    instructions = schedule.instructions
    missing = sorted({(each.stage, each.name) for each in instructions} - set(place))
    if missing:
        stage, name = missing[0]
        raise BadInputError(f"`profile`: has no {name} of stage {stage}, which the schedule {schedule.name} runs")
    edges, rank = schedule.edges(), schedule.rank
    return Graph(
        [profile.ways[key] for key in keys],
        np.array([place[each.stage, each.name] for each in instructions], dtype=np.intp),
        edges,
        delay_s=np.where(rank[edges[:, 0]] != rank[edges[:, 1]], profile.transfer_s, 0.0),
        worker=rank,
        waiting_w=np.full(len(schedule.ranks), profile.waiting_w),
    )
