"""The systems of the sources beside ours, from the data that other pages show."""

from __future__ import annotations

import numpy as np

from docs.make.judged_jobs import rows
from docs.make.judged_pipelines import read
from docs.make.judged_serving import SERVING, SHARE
from docs.make.page import Page, percent, read_json, table


def beside() -> str:
    """A line for each comparison on the same data."""
    return table("data | theirs | ours", [*_pipelines(), _jobs(), *_engine(), _cluster()])


def _pipelines() -> list[list[str]]:
    lines = []
    for row in read("perseus-emulation")["rows"]:
        if row.get("perseus_j") and row["straggler"] == 0.0:
            theirs, ours = (percent(1 - row[name] / row["highest_j"], 2) for name in ("perseus_j", "ours_j"))
            late = percent(row["perseus_s"] / row["until_s"] - 1, 2)
            lines.append([
                f"Perseus' profiles, {row['micro_batches']} micro-batches ([emulated](judged-pipelines.md)): saved, solver's time",
                f"{theirs}, {late} late; {row['perseus_cpu_s']:.0f} s", f"{ours}; {row['cpu_s']:.1f} s",
            ])  # fmt: skip
    kept, own = read("lowtime-8x64"), read("lowtime-8x64-ours")
    less = 1 - np.array(own["points"])[:, 2] / np.array(own["points"])[:, 4]
    lines.append([
        "lowtime, 8 stages × 64 micro-batches: less energy at its deadlines, solver's time",
        f"{kept['solver_cpu_s']:,.0f} s", f"{percent(less.min(), 2)} to {percent(less.max(), 2)} less; {own['frontier_cpu_s']:.1f} s",
    ])  # fmt: skip
    return lines


def _jobs() -> list[str]:
    theirs, ours = (sum(row["policies"][name]["regret"] for row in rows()) for name in ("Zeus", "wastenot"))
    return [
        "Zeus' traces of a V100 ([simulated](judged-jobs.md)): regret of six jobs together, in runs at the best pair",
        f"{theirs:.0f}", f"{ours:.0f}",
    ]  # fmt: skip


def _engine() -> list[list[str]]:
    lines = []
    for case in read_json(SERVING / "policies.json"):
        by_name = {row["policy"]: row for row in case["policies"]}
        most = case["policies"][0]["energy_j"]
        cells = []
        for name in ("throttLL'eM, floor chosen before", "price"):
            row = by_name[name]
            kept = "" if row["attainment"] >= SHARE else ", **deadlines missed**"
            cells.append(f"{percent(1 - row['energy_j'] / most)} at {percent(row['attainment'], 2)}{kept}")
        lines.append([
            f"{case['model']} on {case['engine']}, {100 * case['load']:.0f} % load ([simulated](judged-serving.md)): "
            "throttLL'eM's energy saved at deadlines met", *cells,
        ])  # fmt: skip
    return lines


def _cluster() -> list[str]:
    hour = {row["policy"]: row for row in read_json(SERVING / "cluster-policies.json")["hour"]["policies"]}
    cells = [
        f"{hour[name]['energy_j'] / 1e6:.1f} MJ at {percent(hour[name]['attainment'], 2)}"
        for name in ("dynamollm", "parking")
    ]
    return [
        "an hour of Azure's trace on 96 GPUs ([simulated](judged-serving.md#a-cluster-beside-dynamollm)): DynamoLLM",
        *cells,
    ]


PAGES = (Page("mission", blocks={"beside": beside}),)
