"""Condenses what natural_ops.py saw into data/h200/natural: each operation at auto, and its time and power by SM clock.

    PYTHONPATH=src:. python -m benchmarks.h200.condense_ops RAW.npz OPERATIONS.json [MORE.npz MORE.json ...]

A JSON file is the workload file of the operations, by their names. Of each operation the tables hold time, clock and power
alone, once settled; medians of the times of groups of calls in bins of the clock; and power from each
reading, at the clock that it saw through the sensor's delay and lag, less what it saw of the products before.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.files import write_text

FOLDER = Path(__file__).parents[2] / "data" / "h200" / "natural"
SETTLED_S = {False: 0.06, True: 0.45}  # by whether it ran alone for long, as what the power limit holds does
BIN_MHZ, LEAST_GROUPS = 25.0, 3
DELAY_S, LAG_S = 0.012, 0.0125  # of the power sensor: data/h200/fingrav, with half of the 20 ms between its samples
HELD_OUT = "held out"  # in place of a pass
WHOLE, OWN = 0.97, 0.6  # fractions of a reading: that a run accounts for, and that must be the operation
PRODUCTS_MHZ_W = ((1350.0, 1590.0), (705.0, 920.0))  # power of the products themselves by clock, in these runs


def operations(path: str) -> Iterator[tuple[dict[str, Any], dict[str, FloatArray]]]:
    """Notes and arrays of each operation in a file that ran."""
    with np.load(path) as raw:
        for index, notes in json.loads(str(raw["notes"]))["operations"].items():
            if f"{index}_ns" in raw:
                arrays = {what: raw[f"{index}_{what}"].astype(float) for what in ("phase", "calls", "at_us", "ns", "mhz")}
                yield notes, arrays | {"w": raw[f"{index}_w"].astype(float)}


def alone(seen: dict[str, FloatArray]) -> tuple[float, float, float, int]:
    """Time of a call, clock, mean power and number of readings while it ran alone and settled."""
    first = seen["phase"] == 0
    begin_s, seconds = seen["at_us"] / 1e6, seen["ns"] / 1e9
    until = float((begin_s + seconds)[first].max())
    start = SETTLED_S[until > 0.6]
    use = first & (begin_s >= start) & (begin_s < until)
    if not use.any():
        use = first
    moments, watts = seen["w"].T
    told = (moments >= start + DELAY_S + 2 * LAG_S) & (moments <= until + DELAY_S)
    weight = seconds[use] / seconds[use].sum()
    return (
        float(seconds[use].sum() / seen["calls"][use].sum()), float(weight @ seen["mhz"][use]),
        float(np.mean(watts[told])) if told.any() else float("nan"), int(told.sum()),
    )  # fmt: skip


def by_clock(seen: dict[str, FloatArray]) -> Iterator[tuple[float, float, int]]:
    """Clock, time of a call and number of groups, by bins of the clock."""
    own = seen["phase"] % 2 == 0
    own &= np.concatenate([[False], seen["phase"][1:] == seen["phase"][:-1]])  # the first group begins on another's data
    clock, call_s = seen["mhz"][own], seen["ns"][own] / seen["calls"][own] / 1e9
    place = np.round(clock / BIN_MHZ).astype(int)
    for each in np.unique(place):
        here = place == each
        if here.sum() >= LEAST_GROUPS:
            yield float(np.median(clock[here])), float(np.median(call_s[here])), int(here.sum())


def power_by_clock(seen: dict[str, FloatArray]) -> Iterator[tuple[float, float, float]]:
    """The clock at which each power reading saw the operation, its power there, and how much of the reading that was.

    What the reading saw of the products before is taken off, by their own power at their clock.
    """
    begin_s, seconds = seen["at_us"] / 1e6, seen["ns"] / 1e9
    own = seen["phase"] % 2 == 0
    end_s = begin_s + seconds
    for moment, watts in seen["w"]:
        until = moment - DELAY_S
        late, early = (np.minimum(np.exp((edge - until) / LAG_S), 1.0) for edge in (end_s, begin_s))
        weight = late - early
        share = float(weight[own].sum())
        if weight.sum() > WHOLE and share > OWN * weight.sum():
            products_w = np.interp(seen["mhz"][~own], *PRODUCTS_MHZ_W)
            power_w = (watts - weight[~own] @ products_w) / share
            yield float(weight[own] @ seen["mhz"][own] / share), float(power_w), share


def main(*paths: str) -> None:
    at_auto, times, powers, lines = [], [], [], {}
    for raw, listed in zip(paths[::2], paths[1::2], strict=True):
        workload = json.loads(Path(listed).read_text())
        specs = {kernel["name"]: kernel for kernel in workload["kernels"]}
        for notes, seen in operations(raw):
            name = notes["name"]
            if name not in specs:
                continue
            time_s, mhz, watts, readings = alone(seen)
            lines[name] = json.dumps(specs[name], separators=(",", ":"))
            held = specs[name]["pass"] == HELD_OUT
            at_auto.append([name, int(held), f"{time_s:.5g}", f"{mhz:.0f}", f"{watts:.1f}", readings])
            times += [[name, f"{clock:.0f}", f"{call_s:.5g}", groups] for clock, call_s, groups in by_clock(seen)]
            powers += [[name, f"{clock:.0f}", f"{each:.1f}", f"{share:.2f}"] for clock, each, share in power_by_clock(seen)]
    heads = {
        "operations": ("operation", "held_out", "time_s", "core_mhz", "power_w", "power_readings"),
        "time-by-clock": ("operation", "core_mhz", "time_s", "groups"),
        "power-by-clock": ("operation", "core_mhz", "power_w", "fraction_seen"),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    for (table, head), rows in zip(heads.items(), (at_auto, times, powers), strict=True):
        with (FOLDER / f"{table}.csv").open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([head, *rows])
    document = {"schema": "wastenot.workload/1", "name": "h200-operations", "captured_on": "cuda"}
    document["description"] = "operations that were measured alone and in the wake of products"
    text = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items())
    kernels = ",\n".join(f"    {line}" for line in lines.values())
    write_text(FOLDER / "operations.json", f'{{\n{text},\n  "kernels": [\n{kernels}\n  ]\n}}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
