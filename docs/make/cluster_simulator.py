"""Computed from data/serving, which benchmarks write (cluster-speed, splitwise_sim)."""

from __future__ import annotations

from benchmarks.kept import DATA
from docs.make.page import Page, read_json, table


def speed() -> str:
    """A day of a large service, and a short load beside splitwise-sim."""
    day, beside = (read_json(DATA / "serving" / f"{name}.json") for name in ("cluster-speed", "cluster-speed-beside"))
    rows = [
        [
            simulator,
            f"{beside['requests']:,} on {beside['instances']} instances",
            f"{beside[key]:.1f} s, the whole command",
            f"{beside['requests'] / beside[key]:,.0f}",
        ]
        for simulator, key in (("splitwise-sim", "splitwise_sim_s"), ("wastenot", "ours_s"))
    ]
    rows.append(
        [
            "wastenot",
            f"{day['requests']:,} on {day['instances']:,} instances: a day",
            f"{day['day_s']:.0f} s, {day['peak_mib']:,} MiB",
            f"{day['requests'] / day['day_s']:,.0f}",
        ]
    )
    return table("simulator | requests | wall time on one core | requests a second", rows)


PAGES = (Page("cluster-simulator", {"speed": speed}),)
