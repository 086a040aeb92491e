"""What was left when processes that change clocks were killed, from data/kills.csv, which a benchmark adds to (bench_kills)."""

from __future__ import annotations

import csv

from benchmarks.bench_kills import KILLS
from docs.make.page import Page, table
from testbed.stand_in import kill_runs, serve_kills

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
    "serve-control": ("`wastenot serve control`", "the daemon, which lives"),
    "serve-control as root": ("`wastenot serve control` of root, without a daemon", "its keeper"),
    "server": (
        f"a server that it controls (readings of no use after {serve_kills.STALE_S:g} s)",
        "`wastenot serve control`",
    ),
    "serve-control and server": ("`wastenot serve control` and its server", "the daemon, or its keeper"),
}


def kills() -> str:
    """How often clocks were left changed, by what was killed."""
    with KILLS.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    lines = []
    for kind, (killed, restored_by) in WORDS.items():
        found = [row for row in rows if row["kind"] == kind]
        count, changed, left = (sum(int(row[name]) for row in found) for name in ("kills", "clocks_changed", "left"))
        longest_s = max(float(row["longest_s"]) for row in found)
        median_s = next((float(row["median_s"]) for row in reversed(found) if row["median_s"]), 0.0)
        took = f"{median_s:.2f} s, {longest_s:.1f} s" if median_s else f"at most {longest_s:.1f} s" if longest_s else ""
        lines.append([killed, restored_by, f"{count:,}", f"{changed}", f"**{left}**", took])
    return table("killed | restored by | kills | changed at that moment | left changed | median, longest", lines)


PAGES = (Page("daemon", {"kills": kills}),)
