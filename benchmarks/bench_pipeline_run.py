"""Plans of pipelines executed on simulated GPUs in lockstep, in virtual time: what runs beside what was promised.

    nice python -m benchmarks pipeline-run        about 10 minutes

Stages' kernels are measured on a simulated card with all its noise, a plan is made that its driver can carry out
(settings last as long as they take to change), and every rank runs its real kernels on a card of its own: executions of
instructions differ by 0.3 % in time and in power, switches are late or early by the preset's jitter, marks are seen late.
Seeds from 9700 on, which nothing was tuned on; tuned were, on other seeds, how early clocks are requested and what is
kept in reserve.

- time, energy: means of an executed job's iterations after the first, against the plan;
- kept: jobs whose slowdown is within the bound plus 0.1 points, as for kernels; the same iterations, with the same draws,
  at the default clocks are what it is measured against;
- without: the same plan made as if switching took no time, which is what ignoring it comes to.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.verdict import Verdict
from testbed.pipeline_lockstep import RankExecutions, SimulatedRun, simulate_pipeline
from testbed.pipeline_work import KernelWork, calls_of_stages
from wastenot.devices.open import open_device, simulated_device
from wastenot.devices.simulated.preset import find_preset
from wastenot.meters.tasks import WorkloadTasks
from wastenot.pipelines.model.measured_profile import measure_stages, stage_tasks
from wastenot.pipelines.model.schedules import build_schedule
from wastenot.pipelines.model.stages import StageModel, StageOptions
from wastenot.pipelines.plan.planner import PipelineGoal, PlannedPipeline, plan_pipeline
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.plan.switched import with_switching
from wastenot.pipelines.run.rank_execution import RankExecution
from wastenot.planning.planner import Planner
from wastenot.planning.switching import switch_time

FIRST_SEED = 9700
JOBS = 4  # of each case, each on cards of its own
ITERATIONS = 9
TOLERANCE = 0.001
STEP_MHZ = 150.0


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline on one kind of card."""

    preset: str
    model: str
    schedule: str
    ranks: int
    micro_batches: int
    max_slowdown: float

    def __str__(self) -> str:
        what = f"{self.preset}, {self.model}, {self.schedule} {self.ranks}x{self.micro_batches}"
        return f"{what}, {self.max_slowdown:.0%}"


CASES = tuple(
    Case(preset, model, schedule, ranks, micro_batches, slowdown)
    for preset, model, schedule, ranks, micro_batches in (
        ("h200", "gpt3-175b", "1f1b", 8, 24),
        ("h200", "gpt3-175b", "zb-h1", 4, 12),
        ("h200", "gpt3-xl", "1f1b", 4, 16),
        ("rtx-3080-ti", "gpt3-xl", "gpipe", 4, 8),
        ("rtx-3080-ti", "gpt3-xl", "interleaved", 4, 8),
        ("rtx-a4000", "gpt3-medium", "1f1b", 4, 16),
        ("v100", "gpt3-xl", "early-recomputation", 4, 12),
        ("mi300x", "gpt3-6.7b", "1f1b", 4, 16),
    )
    for slowdown in (0.0, 0.03)
)


@cache
def measured(preset: str, model: str, stages: int, seed: int) -> tuple[WorkloadTasks, Planner]:
    """Kernels of a model's stages, measured on one card."""
    tasks = stage_tasks(model, stages)
    return tasks, Planner(measure_stages(open_device(f"sim:{preset}", seed=seed), tasks, core_step_mhz=STEP_MHZ), "kernel")


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A plan, and what its ranks run."""

    case: Case
    made: PlannedPipeline
    model: StageModel
    tasks: WorkloadTasks
    partition: tuple[int, ...]


def prepare(case: Case, seed: int) -> Prepared:
    """Plan a case, as if switching took no time."""
    schedule = build_schedule(case.schedule, ranks=case.ranks, micro_batches=case.micro_batches)
    tasks, planner = measured(case.preset, case.model, case.ranks, seed)
    split = any(each.name == "backward_weight" for each in schedule.instructions)
    early = any(each.name == "recomputation" for each in schedule.instructions)
    model = StageModel.of(planner, options=StageOptions(split_backward=split, recomputation="early" if early else "none"))
    partition = model.balanced(schedule.stages)
    profile = model.profile(partition)
    made = plan_pipeline(profile, schedule, goal=PipelineGoal(max_slowdown=case.max_slowdown + 1e-12))
    return Prepared(case, made, model, tasks, partition)


def execute(prepared: Prepared, seed: int, *, planned: bool = True) -> SimulatedRun:
    """Run a plan, or its pipeline at the default clocks."""
    case, plan = prepared.case, prepared.made.plan
    graph, preset, switching = PlanGraph(plan), find_preset(case.preset), switch_time(f"sim:{case.preset}")
    gpus = [simulated_device(preset, f"sim:{case.preset}", seed=100 * seed + rank) for rank in range(case.ranks)]
    for gpu in gpus:
        gpu.engine.temperature_c = preset.thermal.reference_c
    calls = calls_of_stages(prepared.model, prepared.tasks, prepared.partition)
    work = [KernelWork(gpu.engine.physics, calls, plan.waiting_w) for gpu in gpus]
    ranks = [RankExecution(gpu, graph.steps(rank), graph.period_s, switching) for rank, gpu in enumerate(gpus)]
    driver = RankExecutions(ranks) if planned else None
    return simulate_pipeline(graph, gpus, work, driver, ITERATIONS, seed=seed)


def means(run: SimulatedRun, gpus_per_rank: int) -> tuple[float, float]:
    """Time and energy of an iteration, the first left out."""
    ran = run.iterations[1:]
    return statistics.fmean(each.time_s for each in ran), gpus_per_rank * statistics.fmean(sum(e.energy_j) for e in ran)


@dataclass(frozen=True, slots=True)
class Job:
    """An executed job against its plan and against the default clocks."""

    time: float
    energy: float
    slower: float
    saved: float


def judged(prepared: Prepared, seeds: Sequence[int]) -> list[Job]:
    """Jobs of a plan."""
    plan, found = prepared.made.plan, []
    for seed in seeds:
        time_s, energy_j = means(execute(prepared, seed), plan.gpus_per_stage)
        default_s, default_j = means(execute(prepared, seed, planned=False), plan.gpus_per_stage)
        found.append(
            Job(
                time_s / plan.predicted.time_s - 1.0, energy_j / plan.predicted.energy_j - 1.0,
                time_s / default_s - 1.0, 1.0 - energy_j / default_j,
            )
        )  # fmt: skip
    return found


def line(name: str, jobs: Sequence[Job], bound: float, planned: float) -> str:
    """What jobs came to."""
    kept = sum(job.slower <= bound + TOLERANCE for job in jobs)
    time_, energy = (max((getattr(job, each) for job in jobs), key=abs) for each in ("time", "energy"))
    slower, saved = (statistics.fmean(getattr(job, each) for job in jobs) for each in ("slower", "saved"))
    return (
        f"{name:52} worst of plan: time {time_:+.2%}, energy {energy:+.2%}; kept {kept}/{len(jobs)}, "
        f"slower {slower:+.2%}, saved {saved:.2%} of {planned:.2%} planned"
    )


def main(verdict: Verdict, *, first_seed: int = FIRST_SEED, jobs: int = JOBS, cases: Sequence[Case] = CASES) -> None:
    """Execute all cases."""
    began_s = time.monotonic()
    every: list[tuple[Case, Job]] = []
    for number, case in enumerate(cases):
        seeds = [first_seed + 10 * number + job for job in range(jobs)]
        plain = prepare(case, seeds[0])
        aware = replace(plain, made=with_switching(plain.made, switch_time(f"sim:{case.preset}")))
        found = judged(aware, seeds)
        every += [(case, job) for job in found]
        print(line(str(case), found, case.max_slowdown, -aware.made.plan.energy_change), flush=True)
        print(line("    without", judged(plain, seeds[:1]), case.max_slowdown, -plain.made.plan.energy_change))
    print(f"{len(every)} jobs in {time.monotonic() - began_s:.0f} s")
    verdict.at_most("largest error of an executed plan's time", max(abs(job.time) for _, job in every), 0.005)
    verdict.at_most("largest error of its energy", max(abs(job.energy) for _, job in every), 0.01)
    kept = statistics.fmean(job.slower <= case.max_slowdown + TOLERANCE for case, job in every)
    verdict.at_least("jobs that keep their bound", kept, 0.95)
