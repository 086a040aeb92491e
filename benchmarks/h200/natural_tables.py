"""Tables of many operations from the groups of calls that were recorded of each, alone and in wakes of products.

    python -m benchmarks.h200.natural_tables    # ops.npz.xz -> ops-alone.csv, ops-by-clock.csv

Alone: the second half of a short run by itself. Time by clock: medians of groups in bins of 25 MHz, without the first two
groups after a change. Power by clock: natural_power.py.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import DATA

FOLDER = DATA / "h200" / "natural"
BIN_MHZ = 25.0
LEAST_GROUPS = 4
SKIPPED_GROUPS = 2
ALONE = ("name", "cls", "op", "shape", "flops", "bytes_read", "bytes_written", "aten", "held", "gpu",
         "us_per_call", "sm_mhz", "power_w", "power_readings", "how")  # fmt: skip


def recorded(path: Path = FOLDER / "ops.npz.xz") -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each operation with its groups (phase: even its own, odd products; calls, at_s, seconds, mhz) and readings."""
    with lzma.open(path) as file:
        data = np.load(io.BytesIO(file.read()))
    group, reading = 0, 0
    for meta, groups, readings in zip(
        json.loads(str(data["operations"])), data["groups_per_operation"], data["readings_per_operation"], strict=True
    ):
        part = slice(group, group + int(groups))
        yield meta, {
            "phase": data["phase"][part].astype(int), "calls": data["calls"][part].astype(float),
            "at_s": 1e-6 * np.cumsum(data["at_us"][part].astype(np.int64)), "seconds": 1e-9 * data["ns"][part].astype(float),
            "mhz": 0.1 * data["mhz"][part].astype(float), "readings": data["readings"][reading : reading + int(readings)],
        }  # fmt: skip
        group, reading = group + int(groups), reading + int(readings)


def main() -> None:
    alone, by_clock = [], []
    for meta, seen in recorded():
        phase, at_s, mhz, seconds = seen["phase"], seen["at_s"], seen["mhz"], seen["seconds"]
        us, moments, watts = 1e6 * seconds / seen["calls"], seen["readings"][:, 0], seen["readings"][:, 1]
        end_s = at_s[phase == 0][-1] + seconds[phase == 0][-1]
        late = (phase == 0) & (at_s > min(0.5 * end_s, 0.45))
        read = (moments > 0.09) & (moments < end_s)
        shape = "x".join(map(str, meta["shape"]))
        alone.append((meta["name"], meta["cls"], meta["op"], shape, f"{meta['flops']:.6g}", f"{meta['bytes_read']:.6g}",
                      f"{meta['bytes_written']:.6g}", meta["aten"] or "", int(meta["held"]), meta["gpu"][-12:],
                      f"{np.average(us[late], weights=seen['calls'][late]):.4f}",
                      f"{np.average(mhz[late], weights=seconds[late]):.1f}",
                      f"{watts[read].mean():.1f}" if read.any() else "", int(read.sum()), meta["how"]))  # fmt: skip
        changed = np.append(True, np.diff(phase) != 0)
        since = np.arange(len(phase)) - np.maximum.accumulate(np.where(changed, np.arange(len(phase)), 0))
        own = (phase % 2 == 0) & (since >= SKIPPED_GROUPS)
        where = np.floor(mhz / BIN_MHZ)
        for low in np.unique(where[own]):
            here = own & (where == low)
            if here.sum() >= LEAST_GROUPS:
                by_clock.append((meta["name"], f"{mhz[here].mean():.1f}", f"{np.median(us[here]):.4f}", int(here.sum()),
                                 f"{us[here].std():.4f}"))  # fmt: skip
    write("ops-alone", ALONE, alone)
    write("ops-by-clock", ("name", "sm_mhz", "us_per_call", "groups", "us_sd"), by_clock)


def write(name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a table."""
    with (FOLDER / f"{name}.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)


if __name__ == "__main__":
    main()
