"""Computes the table of docs/serve-sim.md from data/serving, which benchmarks/bench_cluster_forecast.py writes.

PYTHONPATH=src:. python docs/make_serve_sim.py
"""

from __future__ import annotations

import json
from pathlib import Path

from docs.blocks import table, write_blocks

ROOT = Path(__file__).parents[1]
KEPT, PAGE = ROOT / "data" / "serving" / "cluster-forecast.json", ROOT / "docs" / "serve-sim.md"


def forecasts() -> str:
    """Errors and upper quantiles on weeks that shaped nothing."""
    kept = json.loads(KEPT.read_text())
    rows = []
    for row in kept["rows"]:
        errors = [f"{100 * row[name][1]:.1f} %" for name in ("template", "lately", "ours")]
        below = [
            f"{100 * mean:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
            for low, mean, high in (row["below"], row["span_below"])
        ]
        margins = [f"{100 * row[name][1]:.0f} %" for name in ("margin", "template_margin")]
        rows.append([f"{row['name']} ({row['weeks']})", *errors, *below, *margins])
    heads = [
        "weeks (synthetic)",
        "error: template",
        "as the last 15 minutes",
        "ours",
        "slots below our upper quantile",
        "half hours below it",
        "our margin",
        "the template's for as many",
    ]
    return table(heads, rows)


def blocks() -> dict[str, str]:
    """All computed blocks of the page."""
    return {"forecasts": forecasts()}


if __name__ == "__main__":
    write_blocks(PAGE, blocks())
