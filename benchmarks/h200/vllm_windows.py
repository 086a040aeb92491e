"""Steps of a real vLLM beside the profile composed of kernels that were measured on the same card (data/h100/vllm).

    python -m benchmarks.h200.vllm_windows

Nothing is fitted. A window's time is from one step's end to another's, its energy the counter's between them; the profile's
are summed over the same steps. ``each prompt's own attention`` takes several prompts of a step as such, instead of as one.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from benchmarks.kept import DATA
from wastenot.core.setting import AUTO
from wastenot.serving.model.engine_tables import EngineTables
from wastenot.serving.model.from_kernels import kernels_of, tables_of
from wastenot.study.sweep import Kernel, Sweep

RECORD = DATA / "h100" / "vllm" / "windows.json"


def tables(record: dict[str, Any]) -> EngineTables:
    """The profile at the card's own clocks."""
    rows = record["kernels"]
    nothing = np.full(len(rows), np.nan)
    time_s, energy_j, core_mhz = (np.array([row[name] for row in rows]) for name in ("time_s", "energy_j", "core_mhz"))
    sweep = Sweep(
        tuple(Kernel(row["name"], row["count"], None) for row in rows), np.arange(len(rows)), nothing, nothing, nothing,
        time_s, energy_j, nothing, nothing, core_mhz, nothing, nothing, nothing,
        workload="llama-8b-serving", device=record["provenance"]["gpu"],
    )  # fmt: skip
    return tables_of(kernels_of(sweep), (AUTO,), "forecast", idle_power_w=record["provenance"]["idle_w"])


def errors(record: dict[str, Any], *, own_attention: bool = False) -> list[tuple[float, float]]:
    """Relative errors of each window's time and energy."""
    of = tables(record)
    attention = {row["name"]: row["count"] * np.array([row["time_s"], row["energy_j"]]) for row in record["kernels"]}
    knots = sorted(int(name.split()[2]) for name in attention if "new tokens" in name)

    def alone(tokens: float) -> Any:
        each = np.array([attention[f"attention of {knot} new tokens, 0 in the cache"] for knot in knots])
        return np.array([np.interp(tokens, knots, each[:, column]) for column in (0, 1)])

    found = []
    for window in record["windows"]:
        said = np.zeros(2)
        for step in window["steps"]:
            new, made, context = step["prefill_tokens"], step["decode_tokens"], min(max(step["context"], 1.0), 2048.0)
            cost = (
                (of.mixed(0, new, 0.0, made, context) if made else of.prefill(0, new))
                if new
                else of.decode(0, made, context)
            )
            extra = np.zeros(2)
            if own_attention and step["prompts"] > 1:
                extra = step["prompts"] * alone(new / step["prompts"]) - alone(new)
            said += step["count"] * (np.array(cost) + extra)
        off = said / np.array([window["seconds"], window["joules"]]) - 1.0
        found.append((float(off[0]), float(off[1])))
    return found


def main() -> None:
    """Print each window, and what they come to."""
    record = json.loads(RECORD.read_text())
    print({key: record["provenance"][key] for key in ("gpu", "uuid", "vllm", "made_at")})
    plain, own = errors(record), errors(record, own_attention=True)
    for window, off, better in zip(record["windows"], plain, own, strict=True):
        steps = sum(step["count"] for step in window["steps"])
        print(
            f"{window['name']:8}{window['decodes']:4} + {window['prompts']} x {window['prompt_tokens']:4}  {steps:4} steps "
            f"{1e3 * window['seconds'] / steps:8.2f} ms {window['joules'] / window['seconds']:4.0f} W "
            f"{window['core_mhz']:5.0f} MHz  time {off[0]:+.1%} energy {off[1]:+.1%}  own {better[0]:+.1%} {better[1]:+.1%}"
        )
    for what, found in (("plain", plain), ("each prompt's own attention", own)):
        for kind in ("decode", "prefill", "mixed", ""):
            off = np.abs([each for each, window in zip(found, record["windows"], strict=True) if kind in window["name"]])
            mean, worst = off.mean(axis=0), off.max(axis=0)
            print(
                f"{what}, {kind or 'all'}: {len(off)}, mean {mean[0]:.1%} {mean[1]:.1%}, worst {worst[0]:.1%} {worst[1]:.1%}"
            )


if __name__ == "__main__":
    main()
