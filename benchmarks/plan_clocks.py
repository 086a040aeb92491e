"""The clock that a plan of ours gives each instruction, by its name, for others to recompute the plan from."""

from __future__ import annotations

from wastenot.frontiers.graph import Graph, GraphPlan
from wastenot.pipelines.model.schedule import PipelineSchedule


def clocks_of(plan: GraphPlan, graph: Graph, schedule: PipelineSchedule) -> dict[tuple[int, str, int], float]:
    """MHz by (stage, instruction, micro-batch)."""
    return {
        (each.stage, each.name, each.micro_batch): graph.ways(kind)[way].choices[0].core_mhz
        for each, kind, way in zip(schedule.instructions, graph.kind.tolist(), plan.way.tolist(), strict=True)
    }
