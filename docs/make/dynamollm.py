"""Computed from data/serving, which benchmarks write (cluster-policies, cluster-emergencies)."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.kept import DATA
from docs.make.page import Page, percent, read_json, table

SERVING = DATA / "serving"


def policies(load: str) -> str:
    """All policies on a load, and how far down energy could go."""
    kept = read_json(SERVING / "cluster-policies.json")[load]
    first = kept["policies"][0]
    rows = []
    for row in kept["policies"]:
        saved = percent(1 - row["energy_j"] / first["energy_j"])
        rows.append(
            [
                f"`{row['policy']}`",
                f"{row['energy_j'] / 1e6:,.1f}",
                "–" if row is first else f"({saved}) failed" if row["failed"] else saved,
                percent(row["attainment"], 2),
                percent(min(each for each in row["by_class"] if each is not None), 2),
                " / ".join("–" if each is None else f"{1e3 * each:,.0f}" for each in row["ttft_p99_s"]),
                f"{1e3 * row['tbt_p99_s']:.0f}",
                f"{row['power_p50_w'] / 1e3:.1f} / {row['power_p99_w'] / 1e3:.1f}",
                f"{row['gpu_hours']:,.0f}",
            ]
        )
    heads = "policy | MJ | saved | in time | worst class | TTFT P99, ms | TBT P99, ms | power P50 / P99, kW | GPU-hours"
    bound_j, oracle_j = first["bound_j"], kept["oracle_j"]
    bounds = (
        f"\n{first['requests']:,} requests, {kept['gpus']:,} GPUs, simulated. No policy can need less than {bound_j / 1e6:,.1f} MJ: that "
        "is what the cheapest steps that make these tokens take. With perfect knowledge, parts of instances and changes that cost "
        f"nothing, about {oracle_j / 1e6:,.1f} MJ would do (an estimate, not a bound).\n"
    )
    return table(heads, rows) + bounds


def knobs() -> str:
    """What start-up times and head-room cost."""
    rows = [
        [
            f"`{row['policy']}`",
            f"{row['start_s']:.0f} s",
            "–" if row["head_room"] is None else percent(row["head_room"], 0),
            f"{row['energy_j'] / 1e6:,.0f}" + (" failed" if row["failed"] else ""),
            percent(row["attainment"], 2),
            percent(row["worst_class"], 2),
        ]
        for row in read_json(SERVING / "cluster-knobs.json")
    ]
    return table("policy | a start takes | head-room | MJ | in time | worst class", rows)


def emergencies() -> str:
    """What becomes of each service in each event, over seeds."""
    runs: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for each in read_json(SERVING / "cluster-emergencies.json")["recoveries"]:
        runs.setdefault((each["service"], each["event"]), {}).setdefault(each["policy"], []).append(each)
    rows = []
    for (service, event), policies in runs.items():
        row = [service, event]
        for run in policies.values():
            back = [each["back_s"] for each in run]
            least, most = f"{min(back):.0f}", f"{max(back):.0f}"
            late = sum(each["late"] for each in run) / sum(each["came"] for each in run)
            row += [least if least == most else f"{least} – {most}", percent(late)]
        rows.append(row)
    return table("service | event | what its GPUs can do: back after, s | late | ours: back after, s | late", rows)


PAGES = (
    Page(
        "dynamollm",
        {load: partial(policies, load) for load in ("hour", "hour-1000", "week")}
        | {"knobs": knobs, "emergencies": emergencies},
    ),
)
