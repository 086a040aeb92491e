"""What kernels' own clocks add to one clock an instruction, planned and executed on simulated cards.

For each way to set clocks (one for an instruction, one for a layer, one for a kernel as if switches were free, stretches as
long as the card needs to switch) a plan of 1F1B, made from a simulated measurement; then the plan is run on simulated GPUs
whose clocks take their time to switch, and on ones that switch at once. Execution has no other faults, so that the
difference is that of switching. Simulated throughout; the physics that executes is not what the plan was made from, which is
a noisy measurement of it.

    python -m benchmarks.bench_pipeline_inside [OUT.json]     (cases that OUT.json has already are not run again)
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import keep
from benchmarks.verdict import Verdict, run_alone
from testbed.pipeline_lockstep import Faults, RankExecutions, simulate_pipeline
from testbed.pipeline_work import Course, KernelWork
from wastenot.core.setting import Setting
from wastenot.devices.open import open_device, simulated_device
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.hardware import Switching
from wastenot.devices.simulated.preset import find_preset
from wastenot.pipelines.model.measured_profile import measure_stages, stage_tasks
from wastenot.pipelines.model.schedules import one_forward_one_backward
from wastenot.pipelines.model.stages import StageModel, StageOptions
from wastenot.pipelines.model.ways import SETTINGS
from wastenot.pipelines.plan.plan import PipelinePlan
from wastenot.pipelines.plan.planner import PipelineGoal, plan_pipeline
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.run.rank_execution import RankExecution
from wastenot.planning.planner import Planner
from wastenot.planning.switching import SwitchTime, switch_time
from wastenot.workloads.stages import stage_work

Calls = Mapping[tuple[int, str], Sequence[Task]]
CASES = (("h200", "gpt3-xl", 4, 16), ("v100", "gpt3-xl", 4, 16), ("h200", "gpt3-175b", 8, 12))
SLOWDOWNS = (0.0, 0.05)
SEED, ITERATIONS, WARM_UP = 5, 3, 1
FREE = Switching.of(0.0)


@dataclass(frozen=True, slots=True)
class WithCollectives:
    """Work whose instructions also take so long, at every clock and at the power of waiting, for what GPUs exchange."""

    kernels: KernelWork
    collectives_s: Mapping[tuple[int, str], float]
    power_w: float

    def course(self, stage: int, name: str, setting: Setting, temperature_c: float) -> Course:
        """An instruction's kernels, its collectives spread among them."""
        own, added_s = self.kernels.course(stage, name, setting, temperature_c), self.collectives_s[stage, name]
        spread = added_s * own.until_s / own.until_s[-1]
        return Course(own.until_s + spread, own.until_j + self.power_w * spread, own.throttled)

    def waiting_w(self, setting: Setting, temperature_c: float) -> float:
        """Power while the rank waits."""
        return self.kernels.waiting_w(setting, temperature_c)


def executed(
    plan: PipelinePlan,
    card: str,
    calls: Calls,
    collectives_s: Mapping[tuple[int, str], float],
    free: bool,
    dry_run: bool = False,
) -> tuple[float, float]:
    """Time and energy of an iteration on simulated GPUs; with ``dry_run`` at the default clocks."""
    graph, preset = PlanGraph(plan), find_preset(card)
    switching, known = (FREE, switch_time("x", 0.0)) if free else (None, switch_time(f"sim:{card}"))
    gpus: list[SimulatedDevice] = [
        simulated_device(preset, f"sim:{card}", seed=rank, switching=switching) for rank in range(len(plan.ranks))
    ]
    work = [
        WithCollectives(KernelWork(gpu.engine.physics, calls, plan.waiting_w), collectives_s, plan.waiting_w) for gpu in gpus
    ]
    ran = simulate_pipeline(graph, gpus, work, driver(graph, gpus, known, dry_run), ITERATIONS, faults=Faults(0.0, 0.0))
    steady = ran.iterations[WARM_UP:]
    return float(np.mean([each.time_s for each in steady])), float(np.mean([sum(each.energy_j) for each in steady]))


def driver(graph: PlanGraph, gpus: Sequence[SimulatedDevice], switching: SwitchTime, dry_run: bool) -> RankExecutions | None:
    """What sets the clocks; nothing does when only pretending."""
    if dry_run:
        return None
    return RankExecutions(
        [RankExecution(gpu, graph.steps(rank), graph.period_s, switching) for rank, gpu in enumerate(gpus)]
    )


def case(card: str, model: str, stages: int, micro_batches: int) -> list[dict[str, Any]]:
    """Rows of one card and model."""
    tasks = stage_tasks(model, stages)
    planner = Planner(measure_stages(open_device(f"sim:{card}", seed=SEED), tasks), "kernel")
    schedule = one_forward_one_backward(stages, micro_batches)
    partition = StageModel.of(planner).balanced(stages)
    rows = []
    for slowdown in SLOWDOWNS:
        for settings in SETTINGS:
            began = time.process_time()
            stage_model = StageModel.of(planner, options=StageOptions(settings=settings))
            made = plan_pipeline(stage_model.profile(partition), schedule, goal=PipelineGoal(max_slowdown=slowdown))
            plan, before, found = made.plan, made.plan.baseline, made.plan.predicted
            row = {
                "card": card, "model": model, "stages": stages, "micro_batches": micro_batches,
                "slowdown": slowdown, "settings": settings,
                "planned_time": found.time_s / before.time_s - 1.0, "planned_saved": 1.0 - found.energy_j / before.energy_j,
                "bound_saved": 1.0 - plan.lower_bound_j / before.energy_j, "cpu_s": time.process_time() - began,
            }  # fmt: skip
            work = stage_work(tasks.kernels, partition)
            calls = {key: [tasks.tasks[kernel] for kernel in each.order] for key, each in work.items()}
            collectives = {key: each.layers * stage_model.collectives_s for key, each in work.items()}
            default = executed(plan, card, calls, collectives, free=True, dry_run=True)
            for name, free in (("free", True), ("own", False)):
                seconds, joules = executed(plan, card, calls, collectives, free)
                row |= {f"{name}_time": seconds / default[0] - 1.0, f"{name}_saved": 1.0 - joules / default[1]}
            row = {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}
            rows.append(row)
            print("  " + ", ".join(f"{k} {v:.4f}" if isinstance(v, float) else str(v) for k, v in row.items()), flush=True)
    return rows


def main(verdict: Verdict, out: Path | None = None) -> None:
    rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"] if out and out.exists() else []
    for each in CASES:
        if each not in {tuple(row[name] for name in ("card", "model", "stages", "micro_batches")) for row in rows}:
            rows += case(*each)
        if out:
            header = {"basis": "simulated", "command": "python -m benchmarks.bench_pipeline_inside OUT.json", "seed": SEED}
            keep(out, header | {"rows": rows})
    for row in rows:
        if row["settings"] == "kernel":
            one = next(each for each in rows if (each["card"], each["model"], each["slowdown"], each["settings"]) == (
                row["card"], row["model"], row["slowdown"], "instruction"))  # fmt: skip
            verdict.at_least(
                f"{row['card']}, {row['model']}, slowdown {row['slowdown']:.0%}: saved by kernels' own clocks beyond one's",
                row["bound_saved"] - one["bound_saved"], 0.0,
            )  # fmt: skip


if __name__ == "__main__":
    run_alone(main, *map(Path, sys.argv[1:]))
