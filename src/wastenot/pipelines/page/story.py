"""What a pipeline's plan says in ten seconds: what is saved at which slowdown, how that is known, and what it rests on."""

from __future__ import annotations

from wastenot.core.origin import Origin
from wastenot.core.wording import counted
from wastenot.pages.formatting import SPACE, change, number, pace, percent, quantity, round_quantity, saved_range
from wastenot.pages.panel import Line, Next, Panel, Tone
from wastenot.pipelines.page.drawing import before_text, mhz_text, ranks_text
from wastenot.pipelines.plan.overview import PipelineOverview
from wastenot.pipelines.plan.plan import PipelinePlan

_HOW: dict[Origin, str] = {
    "measured": "computed from instructions measured one by one",
    "simulated": "on a simulated GPU",
    "synthetic": "computed from a synthetic profile, made for a demonstration",
    "forecast": "computed from a forecast",
}
_GPUS_OF_A_HOST = 8  # beyond which torchrun has to be told of hosts
_FEW_RANKS = 8  # that are named one by one
_SAME = 5e-6  # slowdown that is none


def story_of(overview: PipelineOverview) -> tuple[Tone, str, str, tuple[Panel, ...]]:
    """How sure the plan is, the headline, its verdict, and three panels."""
    plan = overview.plan
    return "promised", _effect(plan), _verdict(plan), (_energy(overview), _time(overview), _bound(overview))


def _effect(plan: PipelinePlan) -> str:
    if plan.until_s is not None:
        slower = plan.until_s / plan.baseline.time_s - 1.0
        return f"{_saved(plan, 'Expected to save')} while another pipeline is {percent(slower, 1)} slower"
    return f"{_saved(plan, 'Expected to save')}, {_pace(plan)}"


def _saved(plan: PipelinePlan, verb: str) -> str:
    saved = -plan.energy_change
    return f"{verb} {percent(saved, 1)} of the energy" if saved >= 0.0 else f"Uses {percent(-saved, 1)} more energy"


def _pace(plan: PipelinePlan) -> str:
    slower = plan.predicted.time_s / plan.baseline.time_s - 1.0
    if abs(slower) < _SAME:
        return "no slower"
    return pace(slower)


def _verdict(plan: PipelinePlan) -> str:
    sure = "" if plan.promise is None else f" with {percent(plan.promise.sure, 0)} confidence"
    if plan.until_s is not None:
        kept = f"finishes when the other does{sure}"
    elif plan.max_slowdown is None:
        kept = ""
    else:
        kept = f"at most {100.0 * plan.max_slowdown:.3g}{SPACE}% slower{sure}" if plan.max_slowdown else sure.strip()
    return ", ".join(filter(None, (kept, _HOW[plan.origin])))


def _energy(overview: PipelineOverview) -> Panel:
    plan, before, after = overview.plan, overview.before, overview.after
    waiting = [quantity(float(line.waiting_j.sum()), "J", 3) for line in (after, before)]
    power, was = (quantity(line.energy_j / line.lasts_s, "W", 3) for line in (after, before))
    lines = [Line("While waiting", f"{waiting[0]} instead of {waiting[1]}"), Line("Mean power", f"{power} instead of {was}")]
    if plan.promise is not None:
        sure = f"{percent(plan.promise.level, 0)} interval"
        lines.append(Line(sure, saved_range(plan.promise.energy_change_interval, 1)))
    if plan.replicas > 1:
        saving = plan.replicas - (plan.until_s is not None)  # the straggler saves nothing
        which = "of them" if saving == plan.replicas else "that wait for the straggler"
        saved = f"{joules(saving * (plan.baseline.energy_j - plan.predicted.energy_j))} saved per iteration"
        lines.append(Line("All pipelines", f"{saving} {which}, {saving * plan.gpus:,} GPUs: {saved}"))
    used = f"using {joules(after.energy_j)} instead of {joules(before.energy_j)} at the {before_text(plan)}"
    value = f"{percent(abs(plan.energy_change), 1)} {'saved' if plan.energy_change <= 0.0 else 'more'}"
    gpus = counted(plan.gpus, "GPU") + (" of a pipeline" if plan.replicas > 1 else "")
    return Panel("Energy of an iteration", value, f"{used}, all {gpus}.", lines=tuple(lines))


def _time(overview: PipelineOverview) -> Panel:
    plan, before, after = overview.plan, overview.before, overview.after
    lines = _clocks(overview)
    took = quantity(before.time_s, "s", 4)
    waits = f"{percent(after.waiting, 1)} of the time"
    if plan.until_s is not None:
        lines.insert(0, Line("GPUs wait", f"{waits} instead of {percent(before.waiting, 1)}"))
        own = f"{quantity(after.time_s, 's', 4)} instead of {took} at the {before_text(plan)}"
        lines.insert(0, Line("Its own work", own))
        return Panel(
            "Time of an iteration", quantity(after.lasts_s, "s", 4), "until the slower pipeline is done.", lines=tuple(lines)
        )
    lines += [
        Line("An iteration takes", took if abs(after.time_s / before.time_s - 1.0) < _SAME else
             f"{quantity(after.time_s, 's', 4)} instead of {took}"),
        Line("Switching", switching_text(plan).rpartition(";")[0]),
        Line("Critical", _critical(overview)),
    ]  # fmt: skip
    if plan.promise is not None:
        ends = " to ".join(map(change, plan.promise.time_change_interval))
        lines.append(Line(f"{percent(plan.promise.level, 0)} interval", f"{ends} of its time"))
    return Panel("GPUs wait", waits, f"instead of {percent(before.waiting, 1)}, for other ranks.", lines=tuple(lines))


def _critical(overview: PipelineOverview) -> str:
    """How many instructions could not be any slower, and where most of them are."""
    boxes = [box for box in overview.after.boxes if box.clocks]
    stages = [box.stage for box in boxes if box.critical]
    most = max(set(stages), key=stages.count, default=0)
    return f"{len(stages):,} of {counted(len(boxes), 'instruction')}, {stages.count(most):,} of them on stage {most}"


def _clocks(overview: PipelineOverview) -> list[Line]:
    """Which core clocks the plan sets, and how often they change."""
    clocks = [box.core_mhz for box in overview.after.boxes if box.core_mhz is not None]
    lines = []
    if clocks:
        lowest, highest = mhz_text(min(clocks)), mhz_text(max(clocks))
        among = "" if len(clocks) == len(overview.after.boxes) else ", or left to the GPU"
        lines.append(Line("Core clocks", f"{lowest if lowest == highest else f'{lowest} to {highest}'}{among}"))
    return [*lines, Line("Clocks change", _switches_text(overview))]


def _bound(overview: PipelineOverview) -> Panel:
    """What faster switching, or nothing more at all, would add."""
    plan = overview.plan
    most = max(1.0 - plan.lower_bound_j / plan.baseline.energy_j, -plan.energy_change)
    lines = [
        Line(
            "No plan saves more than", f"{percent(most, 1)}: {joules(plan.lower_bound_j)} in the same time is a lower bound"
        )
    ]
    if (lasting_j := plan.lasting_lower_bound_j) is not None:
        saved = f"{percent(1.0 - lasting_j / plan.baseline.energy_j, 1)} at most, with as much time in reserve"
        lines.insert(1, Line("With settings that last", saved))
    if plan.switching is not None:
        value = f"{percent(-plan.free_energy_change, 1)} saved"
        return Panel("If switching were instant", value, "which no GPU can do today.", lines=tuple(lines))
    return Panel("Least energy possible", joules(plan.lower_bound_j), "within the same time.", lines=tuple(lines))


def next_step(plan: PipelinePlan) -> Next | None:
    """How to train with the plan, in capitals what it does not know; ``None`` for one that only waits for a straggler."""
    if plan.until_s is not None:
        return None
    if plan.device.startswith("sim:"):
        then = "Rehearse it with your program in place of train.py; on the GPUs that it is for, the plan sets their clocks"
    else:
        then = "Train with these clocks, with your program in place of train.py; a dry run (--dry-run) sets none"
    gpus = " --device nvidia:0,..." if plan.device.startswith("unknown") else ""
    ranks = plan.gpus * plan.replicas
    processes = f"--nproc-per-node {ranks}" if ranks <= _GPUS_OF_A_HOST else "..."
    return Next(
        f"{then}; PIPELINE.json is the file that --out writes",
        (f"wastenot apply PIPELINE.json{gpus} -- torchrun {processes} train.py",),
    )


def size_text(plan: PipelinePlan) -> str:
    """How many ranks there are, and GPUs in each."""
    on = f"{counted(len(plan.ranks), 'rank')} of {counted(plan.gpus_per_stage, 'GPU')}"
    return on if plan.replicas == 1 else f"{on}, {plan.replicas} replicas"


def _switches_text(overview: PipelineOverview) -> str:
    """How often ranks change their settings in an iteration: ``twice on ranks 0 and 3, never on others``."""
    settings: dict[int, list[object]] = {}
    for box in overview.after.boxes:
        settings.setdefault(box.rank, []).extend(each.setting for each in box.clocks)
    changes = {
        rank: sum(one != other for one, other in zip(of_rank, [*of_rank[1:], of_rank[0]], strict=True))
        for rank, of_rank in settings.items()
        if of_rank
    }
    changing = [rank for rank, times in changes.items() if times]
    counts = {changes[rank] for rank in changing}
    if len(counts) != 1 or len(changing) > _FEW_RANKS:
        return f"{sum(changes.values()) / max(len(changes), 1):.3g} times per iteration and rank, on average"
    (times,) = counts
    often = "once" if times == 1 else "twice" if times == 2 else f"{times} times"
    rest = "" if len(changing) == len(changes) else ", never on the others"
    return f"{often} per iteration on {ranks_text(changing)}{rest}"


def joules(energy_j: float) -> str:
    """An energy to four digits: ``8,420 J``, ``19.42 kJ``."""
    return f"{number(1e-3 * energy_j, 4)}{SPACE}kJ" if 1e4 <= abs(energy_j) < 1e6 else quantity(energy_j, "J", 4)


def switching_text(plan: PipelinePlan) -> str:
    """How long the plan's settings last, by which numbers, and what it would save if switching took no time."""
    if plan.switching is not None:
        saved = percent(-plan.free_energy_change, 1)
        known = f"{round_quantity(plan.switching.core_s, 's')} ({plan.switching.known})"
        return f"settings last as long as a switch takes, {known}; {saved} would be saved if switching were free"
    inside = (
        "settings change within instructions; switching between them is "
        if any(len(way.clocks) > 1 for way in plan.ways)
        else ""
    )
    return f"{inside}assumed to be free; settings that last as long as a switch takes save less"
