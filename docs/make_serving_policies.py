"""Computes the table of docs/steer.md from data/serving, which benchmarks/bench_serving_policies.py writes.

PYTHONPATH=src:. python docs/make_serving_policies.py
PYTHONPATH=src:. python docs/make_serving_policies.py TRACE.csv    draws its time line, too, of ten minutes of the trace
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from docs.blocks import table, write_blocks
from docs.make_pipelines import packed

ROOT = Path(__file__).parents[1]
KEPT, PAGE = ROOT / "data" / "serving" / "policies.json", ROOT / "docs" / "steer.md"
ATTACK = ROOT / "data" / "serving" / "attack.json"
SHARE = 0.99
RESTS_ON = {"measured": "fitted to measured steps", "simulated": "composed of simulated kernels"}


def policies() -> str:
    """A table for each engine and load."""
    return "\n".join(f"{_heading(case)}\n{_table(case)}\n{_oracle(case)}" for case in json.loads(KEPT.read_text()))


def _heading(case: dict[str, Any]) -> str:
    return (
        f"**{case['model']} on {case['engine']}**, {RESTS_ON[case['evidence']]}, at {100 * case['load']:.0f} % of the "
        f"{case['capacity_per_s']:.3g} requests a second that the greatest clock takes ({case['requests']:,} requests, "
        f"{case['most_step_tokens']:,} tokens a step, a switch takes {1e3 * case['switch_s']:g} ms); simulated:\n"
    )


def _table(case: dict[str, Any]) -> str:
    greatest = case["policies"][0]["energy_j"]
    rows = []
    for row in case["policies"]:
        saved = f"{100 * (1 - row['energy_j'] / greatest):.1f} %"
        rows.append(
            [
                row["policy"],
                "–" if row is case["policies"][0] else saved if row["attainment"] >= SHARE else f"({saved})",
                f"{100 * row['attainment']:.2f} %",
                f"{row['energy_per_token_j']:.4g}",
                " / ".join("–" if each is None else f"{1e3 * each:,.0f}" for each in row["ttft_p99_s"]),
                f"{1e3 * row['tbt_p99_s']:.0f}",
                "–" if row["mean_core_mhz"] is None else f"{row['mean_core_mhz']:,.0f}",
                f"{row['switches']:,}",
            ]
        )
    heads = ["policy", "energy saved", "in time", "J/token", "TTFT P99, ms", "TBT P99, ms", "clock, MHz", "switches"]
    return table(heads, rows)


def _oracle(case: dict[str, Any]) -> str:
    """Ours beside the plan of one who knows what will come."""
    part = case.get("beside_oracle")
    if part is None:
        return ""
    ours, best, greatest = (part["energy_j"][name] for name in ("wastenot", "oracle", "greatest clock"))
    kept = ", ".join(f"{100 * part['attainment'][name]:.2f} % in time" for name in ("wastenot", "oracle")).split(", ")
    return (
        f"On the first {part['part_s'] / 60:g} minutes of it the oracle's plan saves {100 * (1 - best / greatest):.1f} % "
        f"({kept[1]}) and `wastenot` {100 * (1 - ours / greatest):.1f} % ({kept[0]}): {100 * (ours / best - 1):+.1f} % energy "
        "against the plan.\n".replace("-", "−")
    )


def attack() -> str:
    """Ours on loads, engines and errors drawn anew, in a few lines."""
    rows = [each["row"] for each in json.loads(ATTACK.read_text())]
    asked = [row for row in rows if row["greatest_kept"] >= SHARE]
    attains = [row for row in asked if row["kept"] >= SHARE]
    least = min(asked, key=lambda row: row["kept"])
    fixed = [row for row in attains if row["fixed"] is not None]
    more = sum(row["saved"] > row["fixed"] for row in fixed)
    saved = sorted(row["saved"] for row in attains)
    return (
        f"In {len(rows)} cases of about 1,500 requests the greatest clock attains in {len(asked)}, and ours in {len(attains)} of "
        f"these; at worst it keeps {100 * least['kept']:.2f} % where the greatest clock keeps "
        f"{100 * least['greatest_kept']:.2f} %. Where ours attains it saves {100 * saved[0]:.0f} to {100 * saved[-1]:.0f} % "
        f"(median {100 * saved[len(saved) // 2]:.0f} %), more than the best fixed clock in hindsight in {more} of the "
        f"{len(fixed)} cases with one; simulated.\n"
    )


def blocks() -> dict[str, str]:
    """All computed blocks of the page."""
    return {"policies": policies(), "attack": attack()}


def draw(trace: str) -> None:
    """Write docs/images/steer-minute.png: the busiest minute of ten at half load."""
    from wastenot.pages.figure import export_figures
    from wastenot.serving.model.profile_file import read_engine
    from wastenot.serving.model.steering import steer
    from wastenot.serving.model.traces import read_trace
    from wastenot.serving.page.steer_page import origin_of, steer_figures

    engine = read_engine(KEPT.parent / "llama-8b-sim-h200.json").engine()
    found = steer(engine, read_trace(trace).requests.part(600.0, 1200.0), load=0.5, policies=("wastenot",))
    with tempfile.TemporaryDirectory() as folder:
        pictures = export_figures(steer_figures(found), origin_of(found), folder)
        picture = next(path for path in pictures if path.name == "serving-minute.png")
        (ROOT / "docs" / "images" / "steer-minute.png").write_bytes(packed(picture.read_bytes()))


if __name__ == "__main__":
    write_blocks(PAGE, blocks())
    if sys.argv[1:]:
        draw(sys.argv[1])
