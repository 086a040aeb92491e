"""Computes the tables of docs/cluster-simulator.md from data/serving, which benchmarks write.

PYTHONPATH=src:. python docs/make_cluster_simulator.py
"""

from __future__ import annotations

import json
from pathlib import Path

from docs.blocks import table, write_blocks

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "cluster-simulator.md"
DAY, BESIDE = (ROOT / "data" / "serving" / f"{name}.json" for name in ("cluster-speed", "cluster-speed-beside"))


def speed() -> str:
    """A day of a large service, and a short load beside splitwise-sim."""
    day, beside = (json.loads(path.read_text()) for path in (DAY, BESIDE))
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
    return table(["simulator", "requests", "wall time on one core", "requests a second"], rows)


def blocks() -> dict[str, str]:
    """All computed blocks of the page."""
    return {"speed": speed()}


if __name__ == "__main__":
    write_blocks(PAGE, blocks())
