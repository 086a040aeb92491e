"""Serving judged: from data/serving, which benchmarks write, and steps of a server on an H200, from data/h200/serving."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stdout
from statistics import median
from typing import Any

import numpy as np

from benchmarks.kept import DATA
from docs.make.page import Page, filled, percent, read_json, signed, table

SERVING = DATA / "serving"
SHARE = 0.99
LOADS = {"hour": "an hour", "hour-1000": "an hour", "week": "a week (synthetic)"}


def steps() -> str:
    """Steps measured, and how far off they are when estimated from kernels."""
    from benchmarks.h200.serving_steps import judge

    record = read_json(DATA / "h200" / "serving" / "steps.json")
    with redirect_stdout(io.StringIO()):
        rows = [{**row, **off} for row, off in zip(record["steps"], judge(record), strict=True)]
    lines = []
    for phase in (*dict.fromkeys(row["phase"] for row in rows), "all"):
        of_phase = [row for row in rows if phase in (row["phase"], "all")]
        lines.append([phase, f"{len(of_phase)}", *(_errors([row[what] for row in of_phase]) for what in ("time", "energy"))])
    return table("steps | number | time: from, to; mean size | energy: from, to; mean size", lines)


def _errors(errors: list[float]) -> str:
    low, high = (signed(100 * end, 1, " %") for end in (min(errors), max(errors)))
    return f"{low}, {high}; {percent(float(np.abs(errors).mean()))}"


def one_engine() -> str:
    """All policies on each engine and load, and how near the oracle ours is."""
    cases = read_json(SERVING / "policies.json")
    heads = [f"{case['model']} on {case['engine']}, {100 * case['load']:.0f} %" for case in cases]
    lines = []
    for rows in zip(*(case["policies"] for case in cases), strict=True):
        cells = []
        for case, row in zip(cases, rows, strict=True):
            saved = percent(1 - row["energy_j"] / case["policies"][0]["energy_j"])
            attains = row["attainment"] >= SHARE
            cells.append(f"{saved if attains else f'({saved})'}, {percent(row['attainment'], 2)}")
        lines.append([rows[0]["policy"].replace("greatest", "maximum"), *cells])
    loads = "; ".join(
        f"{head}: {case['requests']:,} requests of at most {case['capacity_per_s']:.3g} per second, {case['most_step_tokens']:,} tokens "
        f"per step, a switch takes {1e3 * case['switch_s']:g} ms"
        for head, case in zip(heads, cases, strict=True)
    )
    return table(" | ".join(["policy", *heads]), lines) + "\n" + filled(f"{loads}. {_oracle(cases)}", 120)


def _oracle(cases: list[dict[str, Any]]) -> str:
    """Ours beside the plan of one who knows what will come."""
    more = []
    for case in cases:
        energy = case["beside_oracle"]["energy_j"]
        more.append(100 * (energy["price"] / energy["oracle"] - 1))
    return f"Against the plan of an oracle on the first minutes, `price` uses {signed(min(more), 1)} to {signed(max(more), 1, ' %')} more energy."


def attack() -> str:
    """Ours on loads, engines and errors drawn again, in a few lines."""
    rows = [each["row"] for each in read_json(SERVING / "attack.json")]
    asked = [row for row in rows if row["greatest_kept"] >= SHARE]
    attains = [row for row in asked if row["kept"] >= SHARE]
    least = min(asked, key=lambda row: row["kept"])
    fixed = [row for row in attains if row["fixed"] is not None]
    beside = sorted(100 * (row["saved"] - row["fixed"]) for row in fixed)
    saved = sorted(row["saved"] for row in attains)
    return filled(
        f"In {len(rows)} cases of about 1,500 requests the maximum clock attains in {len(asked)}, and `price` in "
        f"{len(attains)} of these; at worst the deadlines of {100 * least['kept']:.2f} % of the requests are met where the maximum clock keeps "
        f"{100 * least['greatest_kept']:.2f} %. Where `price` attains it saves {100 * saved[0]:.0f} to {100 * saved[-1]:.0f} % "
        f"(median {100 * saved[len(saved) // 2]:.0f} %); of the {len(fixed)} cases with a fixed clock that attains, it saves more than "
        f"the best of them in hindsight in {sum(each > 0 for each in beside)}, over half a point less in "
        f"{sum(each < -0.5 for each in beside)}, at worst {-beside[0]:.1f} points less, at best {beside[-1]:.1f} more; simulated.\n"
    )


def cluster() -> str:
    """All policies on each load, and how far down energy could go."""
    kept = read_json(SERVING / "cluster-policies.json")
    names = dict.fromkeys(row["policy"] for load in LOADS for row in kept[load]["policies"])
    lines = []
    for name in names:
        cells = []
        for load in LOADS:
            first = kept[load]["policies"][0]
            row = next((row for row in kept[load]["policies"] if row["policy"] == name), None)
            if row is None:
                cells.append("–")
                continue
            saved = percent(1 - row["energy_j"] / first["energy_j"])
            worst = min(each for each in row["by_class"] if each is not None)
            cells.append(
                f"{row['energy_j'] / 1e6:,.1f} MJ, {f'({saved}) failed' if row['failed'] else saved}, {percent(worst, 2)}"
            )
        lines.append([f"`{name}`", *cells])
    bounds = [f"{kept[load]['policies'][0]['bound_j'] / 1e6:,.1f} MJ" for load in LOADS]
    known = [f"{kept[load]['oracle_j'] / 1e6:,.1f} MJ" for load in LOADS]
    on = [f"{kept[load]['all_on_j'] / 1e6:,.1f} MJ" if "all_on_j" in kept[load] else "–" for load in LOADS]
    lines += [
        ["*lower bound*", *bounds],
        ["*lower bound with all GPUs on*", *on],
        ["*estimate with perfect knowledge*", *known],
    ]
    heads = [
        f"{words}, {kept[load]['gpus']:,} GPUs, {kept[load]['policies'][0]['requests']:,} requests"
        for load, words in LOADS.items()
    ]
    said = "Energy, saved against `single-pool`, and the fraction of the worst class that met its deadlines."
    return table(" | ".join(["policy", *heads]), lines) + "\n" + filled(said, 120)


def unseen() -> str:
    """Traces that nothing was shaped on: those of each service that all GPUs keep together, and each that they do not."""
    draws = [draw["traces"] for draw in read_json(SERVING / "cluster-unseen.json")["draws"]]
    lines = [line for traces in draws if CONTROL not in traces[0] for line in _of_draw(traces)]
    return table(" | ".join(["traces", "all GPUs, default clocks", *(f"`{name}`" for name in JUDGED[1:])]), lines)


def control() -> str:
    """Clocks by metrics on all GPUs."""
    draws = [draw["traces"] for draw in read_json(SERVING / "cluster-unseen.json")["draws"]]
    lines = _of_draw(next(traces for traces in draws if CONTROL in traces[0]), ("all GPUs", "best clock", CONTROL))
    return table(f"traces | all GPUs, default clocks | best clock, in hindsight | `{CONTROL}`", lines)


def pooled() -> str:
    """Draws of a shape added up: those prompts, short, middle or long, of which the lowest clock keeps least."""
    lines = []
    for row in read_json(SERVING / "cluster-unseen.json")["pooled"]:
        runs = [np.array(row[name]) for name in ("default clocks", "lowest clock", CONTROL)]
        requests, *kept = (each[:9].reshape(3, 3).sum(axis=1) for each in (np.array(row["requests"]), *runs))
        least = int(np.argmin(kept[1] / np.maximum(requests, 1) + 2 * (requests == 0)))
        cells = [f"{percent(float(each[least] / requests[least]), 2)}" for each in kept]
        for at, run in enumerate(runs[1:], 1):
            cells[at] += f"; saves {percent(1 - run[-1] / runs[0][-1])}"
        what = f"{row['service']}, {row['shape']}: {('short', 'middle', 'long')[least]} prompts"
        lines.append([what, f"{requests[least]:,} of {requests.sum():,}", *cells])
    return table(f"{row['draws']} traces each | requests | default clocks | lowest clock | `{CONTROL}`", lines)


CONTROL = "all-on-by-metrics"
JUDGED = ("all GPUs", "best-static", "dynamollm", "parking")


def _of_draw(rows: list[dict[str, Any]], judged: Sequence[str] = JUDGED) -> list[list[str]]:
    """Of one draw of the traces."""
    lines = []
    for service in dict.fromkeys(row["service"] for row in rows):
        kept = [row for row in rows if row["service"] == service and row["all GPUs"]["keeps"]]
        cells = [f"{service}, the {len(kept)} that all GPUs keep"]
        for name in judged:
            if name not in rows[0]:
                cells.append("–")
                continue
            runs = [(row[name], 1 - row[name]["energy_j"] / row["all GPUs"]["energy_j"]) for row in kept]
            saved = sorted(saving for run, saving in runs if run["keeps"])
            cell = f"keeps {len(saved)}; at worst {percent(min(run['worst'] for run, _ in runs), 2)}"
            spread = f"; saves {percent(saved[0])} to {percent(saved[-1])}, median {percent(median(saved))}"
            cells.append(cell if name == "all GPUs" else cell + spread)
        lines.append(cells)
    for row in rows:
        if not row["all GPUs"]["keeps"]:
            cells = ["–" if row.get(name) is None else percent(row[name]["worst"], 2) for name in judged]
            cells[-1] += "; warned" if row.get("parking", {}).get("warned") else ""
            lines.append([f"{row['service']}, {row['shape']}", *cells])
    return lines


PAGES = (
    Page(
        "judged-serving",
        {
            "h200-steps": steps, "policies": one_engine, "attack": attack, "cluster": cluster, "unseen": unseen,
            "control": control, "pooled": pooled,
        },
    ),
)  # fmt: skip
