"""Plans as ``pipeline_audit`` takes them: those of a run of lowtime (``lowtime_process``), recomputed, and ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.pipeline_audit import Pipeline, Rows
from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.frontiers.graph import Graph, GraphPlan
from wastenot.pipelines.model.schedule import PipelineSchedule


@dataclass(frozen=True, slots=True, eq=False)
class LowtimePlans:
    """What lowtime found, one row for each iteration of its solver, by falling time.

    Attributes:
        claimed_s: its quantised time.
        claimed_cost_j: its fitted cost; without what workers draw while they wait.
        cpu_s: since its solver began.
        clock_mhz: of each instruction; shape (plans, instructions).
        keys: (stage, instruction, micro-batch) of each column.
        time_s: recomputed.
        cost_j: recomputed.
        fit_cpu_s: of reading and fitting, before the solver.
        graph_cpu_s: of building the graph.
        wall_s: of the solver.
        version: of lowtime.
    """

    claimed_s: FloatArray
    claimed_cost_j: FloatArray
    cpu_s: FloatArray
    clock_mhz: IndexArray
    keys: tuple[tuple[int, str, int], ...]
    time_s: FloatArray
    cost_j: FloatArray
    fit_cpu_s: float
    graph_cpu_s: float
    wall_s: float
    version: str

    def energy_j(self, waiting_w: float, stages: int, until_s: float = 0.0) -> FloatArray:
        """Of all GPUs until each plan ends, or until ``until_s``."""
        return np.asarray(self.cost_j + waiting_w * stages * np.maximum(self.time_s, until_s))

    def cheapest_within(self, within_s: float) -> int | None:
        """The plan of least energy that truly ends within a time; ``None`` if none does."""
        fits = np.flatnonzero(self.time_s <= within_s)
        return int(fits[np.argmin(self.cost_j[fits])]) if len(fits) else None


def read_plans(file: Path, rows: Rows, pipeline: Pipeline, waiting_w: float) -> LowtimePlans:
    """Reads what ``lowtime_process`` wrote."""
    with np.load(file) as kept:
        keys = tuple(
            (int(stage), "backward" if backward else "forward", int(micro_batch))
            for stage, backward, micro_batch in zip(kept["stage"], kept["backward"], kept["micro_batch"], strict=True)
        )
        clocks = kept["clocks_mhz"].astype(np.intp)
        if set(keys) != set(pipeline.order):
            raise ValueError(f"{file}: not of {pipeline.stages} stages and {pipeline.micro_batches} micro-batches")
        time, cost = {}, np.zeros(len(clocks))
        for key, column in zip(keys, clocks.T, strict=True):
            known = np.array(sorted(rows[key[:2]]))
            point = np.array([rows[key[:2]][mhz] for mhz in known])[np.searchsorted(known, column)]
            time[key] = point[:, 0]
            cost += point[:, 1] - waiting_w * point[:, 0]
        end: dict[tuple[int, str, int], FloatArray] = {}
        for key in pipeline.order:
            begin = np.zeros(len(clocks))
            for each in pipeline.before[key]:
                begin = np.maximum(begin, end[each])
            end[key] = begin + time[key]
        return LowtimePlans(
            kept["quantised_s"], kept["cost_j"], kept["cpu_s"], clocks, keys, np.max(list(end.values()), axis=0), cost,
            float(kept["fit_cpu_s"]), float(kept["graph_cpu_s"]), float(kept["wall_s"]), str(kept["version"]),
        )  # fmt: skip


def clocks_of(plan: GraphPlan, graph: Graph, schedule: PipelineSchedule) -> dict[tuple[int, str, int], float]:
    """MHz by (stage, instruction, micro-batch)."""
    return {
        (each.stage, each.name, each.micro_batch): graph.ways(kind)[way].choices[0].core_mhz
        for each, kind, way in zip(schedule.instructions, graph.kind.tolist(), plan.way.tolist(), strict=True)
    }
