"""Recurring jobs beside Zeus, from data/jobs, which benchmarks write (jobs, jobs-overlap)."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.kept import DATA
from docs.make.page import Page, read_json, table

ETA = 0.5
SHOWN = ("default", "grid search", "Zeus", "wastenot", "oracle")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = read_json(DATA / "jobs" / f"{name}.json")
    return found


def rows(eta: float = ETA) -> list[dict[str, Any]]:
    return [row for row in read("regret-v100")["rows"] if row["eta"] == eta]


def number(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def regret() -> str:
    """By job and policy, at equal weights."""
    lines = []
    for row in rows():
        cells = []
        for name in SHOWN:
            found = row["policies"][name]
            cells.append(f"{number(found['regret'])} ± {number(found['error'])}")
        lines.append([row["job"], str(row["recurrences"]), *cells])
    return table(f"job | recurrences | {' | '.join(SHOWN)}", lines)


def ratios() -> str:
    """Ours against Zeus', by weight."""
    found = read("regret-v100")["rows"]
    jobs = list(dict.fromkeys(row["job"] for row in found))
    lines = []
    for eta in sorted({row["eta"] for row in found}):
        ours, zeus = (np.array([row["policies"][name]["regret"] for row in rows(eta)]) for name in ("wastenot", "Zeus"))
        cells = [number(each) for each in ours / zeus]
        lines.append([f"{eta:g}", *cells, number(float(np.mean(ours / zeus))), number(float(ours.sum() / zeus.sum()))])
    return table(f"η | {' | '.join(job.split('/')[0] for job in jobs)} | mean of these | all jobs together", lines)


PAGES = (Page("judged-jobs", {"regret": regret, "ratios": ratios}),)
