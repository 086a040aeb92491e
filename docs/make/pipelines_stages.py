"""Computed on simulated H200s, and from data/pipelines, which a benchmark writes (pipeline-confidence)."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from benchmarks.kept import DATA
from docs.make.page import Page, read_json, signed, table
from wastenot.devices.open import open_device
from wastenot.pipelines.model.measured_profile import measure_stages, stage_tasks, whole_tasks
from wastenot.pipelines.model.partition import least_energy_partition
from wastenot.pipelines.model.schedules import build_schedule
from wastenot.pipelines.model.stages import StageModel

STEP_MHZ = 150.0
MODELS = (("gpt3-xl", 4, 12), ("gpt3-13b", 6, 12), ("gpt3-13b", 6, 48), ("llama-70b", 8, 12), ("gpt3-175b", 8, 12))
_SAME = 1e-9


def composed() -> str:
    """Sums of kernels beside whole instructions."""
    tasks = stage_tasks("gpt3-175b", 8)
    partition = [12] * 8
    sums = StageModel.of(measure_stages(open_device("sim:h200", seed=1), tasks, core_step_mhz=STEP_MHZ)).profile(partition)
    whole = whole_tasks(tasks, partition)
    wholes = StageModel.of(measure_stages(open_device("sim:h200", seed=2), whole, core_step_mhz=STEP_MHZ)).profile(partition)
    off: dict[tuple[str, float], list[tuple[float, float]]] = defaultdict(list)
    for (stage, name), frontier in wholes.ways.items():
        there, here = sums.ways[stage, name].alternatives[0], frontier.alternatives[0]
        place = {label: index for index, label in enumerate(there.label)}
        for index, label in enumerate(here.label):
            time, energy = (
                getattr(there.groups, what)[place[label]] / getattr(here.groups, what)[index] - 1.0
                for what in ("time_s", "energy_j")
            )
            off[name, label.core_mhz or np.inf].append((100.0 * time, 100.0 * energy))
    clocks = sorted({clock for _, clock in off if clock >= 700.0}, reverse=True)
    rows = []
    for clock in clocks:
        cells = [np.mean(off[name, clock], axis=0) for name in ("forward", "backward")]
        rows.append(
            ["auto" if np.isinf(clock) else f"{clock:,.0f} MHz", *(signed(x, 1, " %") for cell in cells for x in cell)]
        )
    return table("core clock | forward: time | energy | backward: time | energy", rows)


def partitions() -> str:
    """Balanced partitions beside those of least energy."""
    rows, models = [], {}
    for name, stages, micro_batches in MODELS:
        if name not in models:
            models[name] = StageModel.of(
                measure_stages(open_device("sim:h200"), stage_tasks(name, stages), core_step_mhz=STEP_MHZ)
            )
        model, schedule = models[name], build_schedule("1f1b", ranks=stages, micro_batches=micro_batches)
        first = model.balanced(stages)
        found = least_energy_partition(first, model.profile, schedule, most=1_000)
        saved = 100.0 * (1.0 - found.energy_j / found.first_j)
        rows.append(
            [
                f"{name}, {micro_batches} micro-batches",
                _listed(first),
                _listed(found.partition) if found.partition != first else "the same",
                f"{saved:.1f} %",
                f"{found.looked_at}",
            ]
        )
    return table("model | balanced | least energy | less energy | partitions looked at", rows)


def confidence() -> str:
    """How often plans kept their slowdown, from the rows that the benchmark left."""
    rows: dict[tuple[str, float], dict[bool, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in read_json(DATA / "pipelines" / "confidence.json")["rows"]:
        rows[row["case"], row["slowdown"]][row["confident"]].append(row)
    lines = []
    for (case, slowdown), by in rows.items():
        cells = []
        for confident in (True, False):
            kept = sum(each["time_change"] <= slowdown + _SAME for each in by[confident])
            saved = -100.0 * float(np.mean([each["energy_change"] for each in by[confident]]))
            cells += [f"{kept} of {len(by[confident])}", f"{saved:.2f} %"]
        worst = 100.0 * (max(each["time_change"] for each in by[True]) - slowdown)
        lines.append([case, f"{slowdown:.0%}", *cells[:2], signed(max(worst, 0.0), 3, " points"), *cells[2:]])
    return table("pipeline, card | allowed | 95 %: kept | saved | late by at most | without: kept | saved", lines)


def _listed(partition: tuple[int, ...]) -> str:
    return ", ".join(map(str, partition))


PAGES = (Page("pipelines-stages", {"composed": composed, "partitions": partitions, "confidence": confidence}),)
