"""Computed from data/serving, which benchmarks write (serving-policies, serving-attack); the picture from a trace of Azure's."""

from __future__ import annotations

from typing import Any

from benchmarks.kept import BESIDE, DATA
from docs.make.page import Page, figure, percent, read_json, table

SERVING = DATA / "serving"
SHARE = 0.99
RESTS_ON = {"measured": "fitted to measured steps", "simulated": "composed of simulated kernels"}


def policies() -> str:
    """A table for each engine and load."""
    return "\n".join(f"{_heading(case)}\n{_table(case)}\n{_oracle(case)}" for case in read_json(SERVING / "policies.json"))


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
        saved = percent(1 - row["energy_j"] / greatest)
        rows.append(
            [
                row["policy"],
                "–" if row is case["policies"][0] else saved if row["attainment"] >= SHARE else f"({saved})",
                percent(row["attainment"], 2),
                f"{row['energy_per_token_j']:.4g}",
                " / ".join("–" if each is None else f"{1e3 * each:,.0f}" for each in row["ttft_p99_s"]),
                f"{1e3 * row['tbt_p99_s']:.0f}",
                "–" if row["mean_core_mhz"] is None else f"{row['mean_core_mhz']:,.0f}",
                f"{row['switches']:,}",
            ]
        )
    return table("policy | energy saved | in time | J/token | TTFT P99, ms | TBT P99, ms | clock, MHz | switches", rows)


def _oracle(case: dict[str, Any]) -> str:
    """Ours beside the plan of one who knows what will come."""
    part = case.get("beside_oracle")
    if part is None:
        return ""
    ours, best, greatest = (part["energy_j"][name] for name in ("price", "oracle", "greatest clock"))
    kept = ", ".join(f"{100 * part['attainment'][name]:.2f} % in time" for name in ("price", "oracle")).split(", ")
    return (
        f"On the first {part['part_s'] / 60:g} minutes of it the oracle's plan saves {100 * (1 - best / greatest):.1f} % "
        f"({kept[1]}) and `price` {100 * (1 - ours / greatest):.1f} % ({kept[0]}): {100 * (ours / best - 1):+.1f} % energy "
        "against the plan.\n".replace("-", "−")
    )


def attack() -> str:
    """Ours on loads, engines and errors drawn anew, in a few lines."""
    rows = [each["row"] for each in read_json(SERVING / "attack.json")]
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


def minute() -> bytes:
    """The busiest minute of ten at half load."""
    from wastenot.serving.model.profile_file import read_engine
    from wastenot.serving.model.steering import steer
    from wastenot.serving.model.traces import read_trace
    from wastenot.serving.page.steer_page import steer_page

    engine = read_engine(SERVING / "llama-8b-sim-h200.json").engine()
    found = steer(
        engine,
        read_trace(BESIDE / "serving" / "AzureLLMInferenceTrace_conv.csv").requests.part(600.0, 1200.0),
        load=0.5,
        policies=("price",),
    )
    return figure(steer_page(found).export, "serving-minute")


PAGES = (Page("steer", {"policies": policies, "attack": attack}, {"steer-minute.png": minute}),)
