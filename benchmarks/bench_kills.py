"""Processes that change clocks are killed at random moments; what is left changed, on the stand-in for NVML.

    python -m benchmarks kills
    python -m benchmarks.bench_kills [KILLS] [SEED] [KIND ...]     # adds to data/kills.csv
    python -m benchmarks.bench_kills table                         # puts that into docs/daemon.md

``testbed/stand_in/kill_runs.py`` says what the kinds are; of ``wastenot apply``, ``testbed/stand_in/apply_kills.py``, and of
``wastenot serve-control``, ``testbed/stand_in/serve_kills.py``.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import ModuleType

from benchmarks.verdict import Verdict
from testbed.stand_in import apply_kills, kill_runs, serve_kills

DOCS = Path(__file__).parents[1] / "docs" / "daemon.md"
BEGIN, END = "<!-- kills -->\n", "<!-- end of kills -->\n"
DATA = Path(__file__).parents[1] / "data" / "kills.csv"
ALL = (*kill_runs.KINDS, *apply_kills.KINDS, *serve_kills.KINDS)
FIELDS = ("kind", "seed", "kills", "journal_there", "clocks_changed", "left", "median_s", "longest_s")


def main(verdict: Verdict) -> None:
    for kind in kill_runs.KINDS:
        found = kill_runs.main(kind, 200)
        verdict.at_most(f"{kind}: GPUs left changed after 200 kills", found["left"], 0)
        if kind in ("client", "hang"):
            verdict.at_most(f"{kind}: seconds until a living daemon has restored", found["longest_s"], 1.0)
    for kind in (*apply_kills.KINDS, *serve_kills.KINDS):
        found = _judge(kind).main(kind, 50)
        verdict.at_most(f"{kind}: GPUs left changed after 50 kills", found["left"], 0)


def write(kills: int, seed: int, kinds: tuple[str, ...]) -> None:
    """Kill, print and add to the data."""
    is_new = not DATA.exists()
    for kind in kinds:
        found = _judge(kind).main(kind, kills, seed) | {"kind": kind, "seed": seed}
        found |= {name: round(found[name], 4) for name in ("median_s", "longest_s")}
        print(found, flush=True)
        with DATA.open("a", newline="") as stream:
            writer = csv.DictWriter(stream, FIELDS)
            if is_new:
                writer.writeheader()
                is_new = False
            writer.writerow(found)


def _judge(kind: str) -> ModuleType:
    return next(each for each in (kill_runs, apply_kills, serve_kills) if kind in each.KINDS)


WORDS = {
    "root": ("a command of root, without a daemon", "the next command"),
    "client": ("a client of the daemon", "the daemon, which lives"),
    "hang": (f"a client, stopped instead of killed (heartbeat {kill_runs.HEARTBEAT_S:g} s)", "the daemon, which lives"),
    "daemon": ("the daemon", "its next start"),
    "both": ("the daemon and its client", "the next start, or the next command of root"),
    "apply": ("`wastenot apply`", "the daemon, which lives"),
    "apply as root": ("`wastenot apply` of root, without a daemon", "the next command"),
    "program": ("the program that `wastenot apply` runs", "`wastenot apply`, which then ends"),
    "apply and program": ("`wastenot apply` and its program", "the daemon, which lives"),
    "serve-control": ("`wastenot serve-control`", "the daemon, which lives"),
    "serve-control as root": ("`wastenot serve-control` of root, without a daemon", "its keeper"),
    "server": (
        f"a server that it controls (readings of no use after {serve_kills.STALE_S:g} s)",
        "`wastenot serve-control`",
    ),
    "serve-control and server": ("`wastenot serve-control` and its server", "the daemon, or its keeper"),
}


def table() -> str:
    """The data as a table in Markdown."""
    with DATA.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    lines = [
        "| killed | restored by | kills | changed at that moment | left changed | median, longest |",
        "|---|---|---|---|---|---|",
    ]
    for kind, (killed, restored_by) in WORDS.items():
        found = [row for row in rows if row["kind"] == kind]
        if not found:
            continue
        kills, changed, left = (sum(int(row[name]) for row in found) for name in ("kills", "clocks_changed", "left"))
        longest_s = max(float(row["longest_s"]) for row in found)
        median_s = next((float(row["median_s"]) for row in reversed(found) if row["median_s"]), 0.0)
        took = f"{median_s:.2f} s, {longest_s:.1f} s" if median_s else f"at most {longest_s:.1f} s" if longest_s else ""
        lines.append(f"| {killed} | {restored_by} | {kills:,} | {changed} | **{left}** | {took} |")
    return "\n".join(lines) + "\n"


def put_table() -> None:
    """Put the table into the documentation."""
    before, _, rest = DOCS.read_text().partition(BEGIN)
    DOCS.write_text(before + BEGIN + table() + END + rest.partition(END)[2])


if __name__ == "__main__":
    if sys.argv[1:] == ["table"]:
        put_table()
        sys.exit()
    write(int((sys.argv[1:] or ["1000"])[0]), int((sys.argv[2:] or ["0"])[0]), tuple(sys.argv[3:]) or ALL)
