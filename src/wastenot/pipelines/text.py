"""A pipeline's plan as text: what it saves, how good that is, and the clocks of each stage."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from wastenot.core.setting import format_mhz
from wastenot.core.wording import counted
from wastenot.frontiers.graph import GraphPlan
from wastenot.pages.formatting import SPACE, change, fraction_of_whole, percent, quantity
from wastenot.pipelines.model.schedule import NAMES, OVERLAPPED
from wastenot.pipelines.page.story import switching_text
from wastenot.pipelines.plan.frontier_table import frontier_rows
from wastenot.pipelines.plan.plan import Iteration, PipelinePlan, Promise
from wastenot.pipelines.plan.planner import PlannedPipeline
from wastenot.pipelines.plan.summary import StageSummary, stages_of
from wastenot.terminal.tables import Group, Paragraph, RenderableType, Text, headline, plain_table

_SAME = 5e-5  # changes of time that are none
_joules, _seconds = (partial(quantity, unit=unit, digits=5) for unit in ("J", "s"))


def pipeline_text(made: PlannedPipeline, out: Path | None = None, *, frontier: bool = False) -> RenderableType:
    """The whole, for a terminal.

    Args:
        made: the plan.
        out: file that it was written to.
        frontier: show its frontier as well.
    """
    from wastenot.terminal.tables import named_rows

    plan = made.plan
    ranks = (
        counted(len(plan.ranks), "stage")
        if len(plan.ranks) == plan.stages
        else (f"{counted(plan.stages, 'stage')} on {counted(len(plan.ranks), 'rank')}")
    )
    what = f"{ranks} × {counted(plan.micro_batches, 'micro-batch')}, {plan.schedule}"
    return Group(
        Paragraph(headline(plan.name, plan.device, plan.origin, what)),
        Paragraph(Text(f"{verdict(plan)}.", style="bold green" if plan.energy_change < -_SAME else "bold")),
        "",
        named_rows(_numbers(made)),
        "",
        _stage_table(stages_of(made)),
        *(["", _frontier_table(plan)] if frontier and plan.rungs else []),
        *_next(plan, out),
    )


def verdict(plan: PipelinePlan) -> str:
    """What the plan saves, in a sentence."""
    saved = percent(-plan.energy_change, 1)
    slower = plan.time_change
    if plan.until_s is not None:
        return f"Saves {saved} of the energy of waiting for the straggler at the default clocks; finishes before it does"
    if plan.energy_change > -_SAME:
        return "Saves nothing within the slowdown limit"
    if slower > _SAME:
        return f"Saves {saved} of the energy for a slowdown of {percent(slower)}"
    if slower < -_SAME:
        return f"Saves {saved} of the energy and is {percent(-slower)} faster"
    return f"Saves {saved} of the energy at no slowdown"


def _numbers(made: PlannedPipeline) -> list[tuple[str, str]]:
    plan = made.plan
    energy_j, base_j = plan.predicted.energy_j, plan.baseline.energy_j
    one = "" if plan.replicas == 1 else " of one pipeline"
    at = "at the default clocks"
    if plan.baseline_clocks == "highest":
        at = "at the highest clock, which stands in for the default clocks"
    rows = [
        (
            "Energy",
            f"{_joules(energy_j)} per iteration, all {counted(plan.gpus, 'GPU')}{one}, waiting included; "
            f"{_joules(base_j)} {at}",
        ),
        ("Time", _time(plan)),
        *([] if plan.promise is None else [("Promise", _promise(plan, plan.promise))]),
        ("Proof", _proof(plan)),
    ]
    if plan.replicas > 1:
        saving = plan.replicas - (plan.until_s is not None)  # the straggler saves nothing
        which = "of them" if saving == plan.replicas else "that wait for the straggler"
        saved = f"{_joules(saving * (base_j - energy_j))} saved per iteration"
        rows.append(("All pipelines", f"{saving} {which}, {saving * plan.gpus:,} GPUs: {saved}"))
    rows.append(("Switching", switching_text(plan)))
    rows.append(("Critical path", _critical(made)))
    rows.append(("Waiting", _waiting(made)))
    return [*rows, ("Assumed", "; ".join(plan.notes))] if plan.notes else rows


def _time(plan: PipelinePlan) -> str:
    by = change(plan.predicted.time_s / plan.baseline.time_s - 1.0)
    own = f"{_seconds(plan.predicted.time_s)} per iteration ({by}); {_seconds(plan.baseline.time_s)} before"
    if plan.until_s is not None:
        return f"{own}, {_seconds(plan.until_s)} for the straggler"
    return f"{own}, {change(plan.max_slowdown)} allowed"


def _promise(plan: PipelinePlan, promise: Promise) -> str:
    goal = "stays within the slowdown limit" if plan.until_s is None else "finishes before the straggler"
    sure = f"{goal} with {percent(promise.sure, 0)} confidence"
    time, energy = (
        " to ".join(map(change, ends)) for ends in (promise.time_change_interval, promise.energy_change_interval)
    )
    return f"{sure}; {percent(promise.level, 0)} intervals: time {time}, energy {energy}"


def _proof(plan: PipelinePlan) -> str:
    least = f"by these numbers no plan needs less than {_joules(plan.lower_bound_j)}"
    left, lasting = percent(max(plan.gap, 0.0)), ""
    if plan.switching is not None and plan.promise is None:
        least += " even if switching were free"
    if plan.lasting_lower_bound_j is not None and plan.lasting_gap is not None:
        left = percent(max(plan.lasting_gap, 0.0))
        least += (
            f", and none less than {_joules(plan.lasting_lower_bound_j)} whose settings last as long as switches take, "
            "with as much time in reserve"
        )
    elif plan.switching is not None:
        lasting = " and whose settings last as long as switches take"
    if plan.promise is None:
        return f"{least}: at most {left} more could be saved"
    return f"{least}, {left} below this plan, which is more certain to stay within the limit{lasting}"


def _critical(made: PlannedPipeline) -> str:
    """Where the time goes."""
    parts = made.graph.critical_path(made.solved).tolist()
    instructions = made.schedule.instructions
    on = [instructions[part].stage for part in parts if part < len(instructions)]
    most = max(set(on), key=on.count)
    shifting = int(made.solved.critical[: len(instructions)].sum())
    return (
        f"{counted(len(on), 'instruction')}, of which {on.count(most)} on stage {most}; "
        f"{shifting} of all {len(instructions):,} could not be any slower"
    )


def _waiting(made: PlannedPipeline) -> str:
    plan, busy = made.plan, made.graph.worker >= 0

    def waiting(solved: GraphPlan, iteration: Iteration) -> float:
        lasts_s = max(iteration.time_s, plan.until_s or 0.0)
        working_s = float(solved.part_time_s[busy].sum()) / len(plan.ranks) + plan.iteration_s
        return 1.0 - working_s / lasts_s

    before, after = waiting(made.baseline, plan.baseline), waiting(made.solved, plan.predicted)
    return f"{percent(after, 1)} of the GPUs' time, {percent(before, 1)} before; a GPU draws {plan.waiting_w:g}{SPACE}W then"


def _stage_table(stages: tuple[StageSummary, ...]) -> RenderableType:
    there = {name for stage in stages for name in stage.core_mhz}
    names = [name for name in NAMES if name in there]
    heads = [f"{'F beside B' if name == OVERLAPPED else name}, MHz" for name in names]
    table = plain_table(("stage",), (*heads, "slower", "energy", "busy", "critical"))
    for each in stages:
        table.add_row(
            f"{each.stage}",
            *(_clocks(each.core_mhz.get(name)) for name in names),
            change(each.slower, 1),
            change(each.energy_change, 1),
            fraction_of_whole(each.busy),
            fraction_of_whole(each.critical),
        )
    return Group(Text("Clocks by stage: lowest to highest over its micro-batches", style="bold"), table)


def _clocks(clocks: tuple[float | None, float | None] | None) -> str:
    if clocks is None:
        return "–"
    low, high = clocks
    return format_mhz(low) if low == high else f"{format_mhz(low)} to {format_mhz(high)}"


def _frontier_table(plan: PipelinePlan) -> RenderableType:
    table = plain_table((), ("time", "energy", "time change", "energy change", "gap"))
    for row in frontier_rows(plan):
        table.add_row(
            quantity(row.time_s, "s", 5), quantity(row.energy_j, "J", 5), change(row.time_change), change(row.energy_change),
            percent(max(row.gap, 0.0), 3),
        )  # fmt: skip
    return Group(Text("From the fastest plan to the lowest-energy one", style="bold"), table)


def _next(plan: PipelinePlan, out: Path | None) -> list[RenderableType]:
    """What to do with it."""
    if out is None:
        return ["", Paragraph(Text("To use it, write it to a file: --out pipeline.json", style="dim"))]
    if plan.until_s is not None:  # for as long as another pipeline is slow: the server of stragglers says when
        return []
    return ["", Text(f"Next: wastenot apply {out} -- torchrun ... train.py", style="green")]
