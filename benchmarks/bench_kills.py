"""Processes that change clocks are killed at random moments; what is left changed, on the stand-in for NVML.

    python -m benchmarks.bench_kills [KILLS] [SEED] [KIND ...]     # adds to data/kills.csv

``testbed/stand_in/kill_runs.py`` says what the kinds are; of ``wastenot apply``, ``testbed/stand_in/apply_kills.py``, and of
``wastenot serve control``, ``testbed/stand_in/serve_kills.py``.
"""

from __future__ import annotations

import csv
import sys
from types import ModuleType

from benchmarks.kept import DATA
from testbed.stand_in import apply_kills, kill_runs, serve_kills

KILLS = DATA / "kills.csv"
ALL = (*kill_runs.KINDS, *apply_kills.KINDS, *serve_kills.KINDS)
FIELDS = ("kind", "seed", "kills", "journal_there", "clocks_changed", "left", "median_s", "longest_s")


def write(kills: int, seed: int, kinds: tuple[str, ...]) -> None:
    """Kill, print and add to the data."""
    is_new = not KILLS.exists()
    for kind in kinds:
        found = judge_of(kind).main(kind, kills, seed) | {"kind": kind, "seed": seed}
        found |= {name: round(found[name], 4) for name in ("median_s", "longest_s")}
        print(found, flush=True)
        with KILLS.open("a", newline="") as stream:
            writer = csv.DictWriter(stream, FIELDS)
            if is_new:
                writer.writeheader()
                is_new = False
            writer.writerow(found)


def judge_of(kind: str) -> ModuleType:
    """What kills processes of a kind."""
    return next(each for each in (kill_runs, apply_kills, serve_kills) if kind in each.KINDS)


if __name__ == "__main__":
    write(int((sys.argv[1:] or ["1000"])[0]), int((sys.argv[2:] or ["0"])[0]), tuple(sys.argv[3:]) or ALL)
