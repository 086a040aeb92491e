"""Steps of a real vLLM beside the profile composed of kernels that were measured on the same card (data/h100/vllm).

    python -m benchmarks.h200.vllm_windows              # the recorded windows, and the profile beside them
    python -m benchmarks.h200.vllm_windows FOLDER       # puts windows.json together from what vllm_on_gpu.py wrote

A window's time is from one step's end to another's, its energy the counter's between them; the profile's are summed over the
same steps, as composed and after :func:`corrected` by the steps of the traffic, which no window has a part in. The power
limit holds for a whole window.
"""

from __future__ import annotations

import json
import lzma
import math
import sys
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import DATA
from wastenot.core.arrays import FloatArray
from wastenot.core.setting import AUTO
from wastenot.serving.cluster.simulation.costs import slower_by
from wastenot.serving.model.corrected import Corrected, corrected
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.from_kernels import kernels_of, tables_of
from wastenot.serving.model.profile_file import EngineProfile
from wastenot.serving.model.step_records import StepRecords, read_step_records
from wastenot.study.store import open_study
from wastenot.study.sweep import Kernel, Sweep

RECORD = DATA / "h100" / "vllm" / "windows.json"
SECOND = DATA / "h100" / "vllm-second" / "windows.json"
STARTS_S, ENDS_S = {True: 2.0, False: 0.5}, 0.8
"""Of a phase with and without decoding requests, in which prompts of the latter are prefilled or requests end."""
_PAST = 2048


def put_together(folder: Path) -> None:
    """``windows.json`` from the files of ``vllm_on_gpu.py`` in a folder."""
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()][1:]
    phases = json.loads((folder / "phases.json").read_text())
    energy = np.loadtxt(folder / "energy.csv", delimiter=",")
    at = np.array([step["at"] for step in steps])

    def used_j(begin: float, end: float) -> float:
        first, last = np.interp([begin, end], energy[:, 0], energy[:, 1])
        return float(1e-3 * (last - first))

    windows = []
    for phase in phases:
        if "decodes" not in phase:
            continue
        heard = energy[
            (energy[:, 0] >= phase["begins"] + STARTS_S[phase["decodes"] > 0]) & (energy[:, 0] <= phase["ends"] - ENDS_S)
        ]
        inside = np.flatnonzero((at > heard[0, 0]) & (at <= heard[-1, 0]))
        begin, end = float(at[inside[0] - 1]), float(at[inside[-1]])
        groups: dict[tuple[int, ...], list[float]] = defaultdict(list)
        for index in inside:
            step, before = steps[index], steps[index - 1]
            after = 0 if before["prefill_tokens"] else before["decode_tokens"]
            most = max(step["running"], step["decode_tokens"], 1)
            context = step["cache_tokens"] / most if step["running"] and step["decode_tokens"] else 0.0
            groups[step["prefills"], step["prefill_tokens"], step["decode_tokens"], after].append(context)
        windows.append({
            **{name: phase[name] for name in ("name", "decodes", "prompts", "prompt_tokens")},
            "seconds": round(end - begin, 4), "joules": round(used_j(begin, end), 2),
            "core_mhz": float(np.median(heard[:, 3])),
            "steps": [
                {"prompts": key[0], "prefill_tokens": key[1], "decode_tokens": key[2], "after_decodes": key[3],
                 "context": round(float(np.mean(contexts)), 1), "count": len(contexts)}
                for key, contexts in groups.items()
            ],
        })  # fmt: skip
    (idle,) = (phase for phase in phases if phase["name"] == "idle")
    begin, end = idle["begins"] + 1.0, idle["ends"]
    provenance = json.loads((folder / "provenance.json").read_text())
    provenance |= dict(zip(("gpu", "uuid", "driver"), provenance["gpu"].split(", ")[:3], strict=True))
    provenance |= {"idle_w": round(used_j(begin, end) / (end - begin), 1), "clocks": "the card's own"}
    sweep = open_study(folder / "kernels.db").read("llama-8b-serving")
    kernels = []
    for place, kernel in enumerate(sweep.kernels):
        own = sweep.kernel_index == place
        means = (float(each[own].mean()) for each in (sweep.time_s, sweep.energy_j, sweep.effective_core_mhz))
        row = dict(zip(("time_s", "energy_j", "core_mhz"), means, strict=True))
        kernels.append({"name": kernel.name, "count": kernel.count, **row})
    traffic = [[phase["begins"], phase["ends"]] for phase in phases if phase["name"] == "traffic"]
    rows = (",\n".join(map(json.dumps, each)) for each in (windows, kernels))
    (folder / "windows.json").write_text(
        '{{"provenance": {}, "traffic": {},\n"windows": [\n{}],\n"kernels": [\n{}]}}\n'.format(
            json.dumps(provenance), json.dumps(traffic), *rows
        )
    )


def composed(record: dict[str, Any]) -> Engine:
    """The engine as its kernels have it, at the card's own clocks."""
    rows = [*record["kernels"], *_on_top(record["kernels"])]
    nothing = np.full(len(rows), np.nan)
    time_s, energy_j, core_mhz = (np.array([row[name] for row in rows]) for name in ("time_s", "energy_j", "core_mhz"))
    sweep = Sweep(
        tuple(Kernel(row["name"], row["count"], None) for row in rows), np.arange(len(rows)), nothing, nothing, nothing,
        time_s, energy_j, nothing, nothing, core_mhz, nothing, nothing, nothing,
        workload="llama-8b-serving", device=record["provenance"]["gpu"],
    )  # fmt: skip
    kernels = kernels_of(sweep)
    tables = tables_of(kernels, (AUTO,), "forecast", idle_power_w=record["provenance"]["idle_w"])
    return Engine(tables, 26_119, most_step_tokens=8192, limit_w=kernels.limit_w, model="llama-8b", device=sweep.device)


def _on_top(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The attention of prompts on top of 2,048 tokens where it was not measured: that of as many pairs without any."""
    alone = {int(row["name"].split()[2]): row for row in rows if row["name"].endswith("new tokens, 0 in the cache")}
    if len(alone) < sum("new tokens" in row["name"] for row in rows):
        return []
    knots = np.array(sorted(alone))
    pairs = np.sqrt(knots * (knots + 2.0 * _PAST))
    found = {
        name: np.interp(pairs, knots, [alone[knot][name] for knot in knots]) * np.maximum(pairs / knots[-1], 1.0) ** 2
        for name in ("time_s", "energy_j")
    }
    return [
        alone[knot] | {"name": f"attention of {knot} new tokens, {_PAST} in the cache", "time_s": time_s, "energy_j": of_j}
        for knot, time_s, of_j in zip(knots.tolist(), found["time_s"], found["energy_j"], strict=True)
    ]


def traffic_of(file: Path, record: dict[str, Any]) -> StepRecords:
    """The steps of the traffic of a record. Its server said that it scheduled asynchronously."""
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        head, *steps = (json.loads(line) for line in lines)
    inside = [step for step in steps if any(begin <= step["at"] <= end for begin, end in record["traffic"])]
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "steps.jsonl"
        kept.write_text("\n".join(map(json.dumps, [{**head, "asynchronous": True, "most_graph_tokens": 512}, *inside])))
        return read_step_records(kept)


def by_traffic(file: Path, record: dict[str, Any]) -> Corrected:
    """The profile corrected by the traffic."""
    steps = traffic_of(file, record)
    return corrected(EngineProfile((composed(record),)), replace(steps, context=np.clip(steps.context, 1.0, 2048.0)))


def errors(record: dict[str, Any], engine: Engine | None = None) -> list[tuple[float, float]]:
    """Relative errors of each window's time and energy: of the composed engine, or of another."""
    engine = engine or composed(record)
    of, limit_w = engine.tables, engine.limit_w or math.inf

    def cost(step: dict[str, Any]) -> FloatArray:
        new, made, context = step["prefill_tokens"], step["decode_tokens"], min(max(step["context"], 1.0), 2048.0)
        if not new:
            found = np.array(of.decode(0, made, context))
        else:
            past = 0.5 * new * (1.0 / step["prompts"] - 1.0)
            found = np.array(of.mixed(0, new, past, made, context) if made else of.prefill(0, new, past))
        idle = np.array([1.0, of.idle_power_w[0]])
        found += engine.overhead_s * idle
        if new:
            launch_s = engine.graph_launch_s if new + made <= engine.most_graph_tokens else engine.launch_s
            before = step["after_decodes"]
            before_s = of.decode(0, before, context or 1.0).time_s + engine.overhead_s if before else 0.0
            found += max(launch_s - before_s - found[0], 0.0) * idle
        return np.asarray(step["count"] * found)

    found = []
    for window in record["windows"]:
        prompts = np.array([step["prompts"] > 0 for step in window["steps"]])
        costs = np.array([cost(step) for step in window["steps"]])
        (with_s, with_j), (said_s, said_j) = costs[prompts].sum(axis=0), costs[~prompts].sum(axis=0)
        slower = slower_by(limit_w, said_j - limit_w * said_s, with_s, with_j)
        off = (said_s + slower * with_s) / window["seconds"] - 1.0, (said_j + with_j / slower) / window["joules"] - 1.0
        found.append((float(off[0]), float(off[1])))
    return found


def show(where: Path) -> None:
    """Print each window of a record, and what they come to."""
    record = json.loads(where.read_text())
    print({key: record["provenance"][key] for key in ("gpu", "uuid", "vllm", "made_at")})
    better = by_traffic(where.parent / "steps.jsonl.xz", record)
    overhead_s, launches_s = better.overhead_s, (better.launch_s, better.graph_launch_s)
    print(overhead_s, better.prefill_scale, better.decode_scale, launches_s, *better.profile.notes, sep="\n")
    variants = {"composed": errors(record), "corrected": errors(record, better.profile.engine())}
    for index, window in enumerate(record["windows"]):
        count, seconds = sum(step["count"] for step in window["steps"]), window["seconds"]
        print(
            f"{window['name']:8}{window['decodes']:4} + {window['prompts']} x {window['prompt_tokens']:4}  {count:4} steps "
            f"{1e3 * seconds / count:8.2f} ms {window['joules'] / seconds:4.0f} W {window['core_mhz']:5.0f} MHz",
            *(f"{what} {each[index][0]:+.1%} {each[index][1]:+.1%}" for what, each in variants.items()), sep="  ",
        )  # fmt: skip
    for what, found in variants.items():
        for kind in ("decode", "prefill", "mixed", ""):
            off = np.abs([each for each, window in zip(found, record["windows"], strict=True) if kind in window["name"]])
            means, worst = (" ".join(f"{each:.1%}" for each in some) for some in (off.mean(axis=0), off.max(axis=0)))
            print(f"{what}, {kind or 'all'}: {len(off)}, mean {means}, worst {worst}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        put_together(Path(sys.argv[1]))
    else:
        for recorded in (RECORD, SECOND):
            show(recorded)
