"""Processes that change clocks are killed at random moments; what is left changed, on the stand-in for NVML.

    python -m benchmarks kills
    python -m benchmarks.bench_kills [KILLS] [SEED] [KIND ...]     # writes data/kills.csv

``tests/stand_in/kill_runs.py`` says what the kinds are; of ``wastenot apply``, ``tests/stand_in/apply_kills.py``.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from benchmarks.verdict import Verdict
from tests.stand_in import apply_kills, kill_runs

DATA = Path(__file__).parents[1] / "data" / "kills.csv"
ALL = (*kill_runs.KINDS, *apply_kills.KINDS)
FIELDS = ("kind", "seed", "kills", "journal_there", "clocks_changed", "left", "median_s", "longest_s")


def main(verdict: Verdict) -> None:
    for kind in kill_runs.KINDS:
        found = kill_runs.main(kind, 200)
        verdict.at_most(f"{kind}: GPUs left changed after 200 kills", found["left"], 0)
        if kind in ("client", "hang"):
            verdict.at_most(f"{kind}: seconds until a living daemon has restored", found["longest_s"], 1.0)
    for kind in apply_kills.KINDS:
        found = apply_kills.main(kind, 50)
        verdict.at_most(f"{kind}: GPUs left changed after 50 kills", found["left"], 0)


def write(kills: int, seed: int, kinds: tuple[str, ...]) -> None:
    """Kill, print and add to the data."""
    is_new = not DATA.exists()
    for kind in kinds:
        judge = apply_kills if kind in apply_kills.KINDS else kill_runs
        found = judge.main(kind, kills, seed) | {"kind": kind, "seed": seed}
        found |= {name: round(found[name], 4) for name in ("median_s", "longest_s")}
        print(found, flush=True)
        with DATA.open("a", newline="") as stream:
            writer = csv.DictWriter(stream, FIELDS)
            if is_new:
                writer.writeheader()
                is_new = False
            writer.writerow(found)


if __name__ == "__main__":
    write(int((sys.argv[1:] or ["1000"])[0]), int((sys.argv[2:] or ["0"])[0]), tuple(sys.argv[3:]) or ALL)
