"""What was left when processes were killed, drivers failed and clients attacked, from data/kills.csv and data/safety.json.

Benchmarks add to these: bench_kills and bench_safety.
"""

from __future__ import annotations

import csv

from benchmarks.bench_budget import BUDGET_W, KEPT
from benchmarks.bench_kills import KILLS
from benchmarks.bench_safety import SAFETY
from docs.make.page import Page, read_json, table
from testbed.stand_in import kill_runs, serve_kills

WORDS = {
    "root": ("a command of root, without a daemon", "the next command"),
    "client": ("a client of the daemon", "the daemon"),
    "hang": (f"a client, stopped instead of killed (heartbeat {kill_runs.HEARTBEAT_S:g} s)", "the daemon"),
    "daemon": ("the daemon", "its next start"),
    "budget": ("the daemon and its client, while GPUs share a budget", "its next start, without one"),
    "both": ("the daemon and its client", "the next start, or the next command of root"),
    "apply": ("`wastenot apply`", "the daemon"),
    "apply as root": ("`wastenot apply` of root, without a daemon", "the next command"),
    "program": ("the program that `wastenot apply` runs", "`wastenot apply`, which then ends"),
    "apply and program": ("`wastenot apply` and its program", "the daemon"),
    "serve-control": ("`wastenot serve control`", "the daemon"),
    "serve-control as root": ("`wastenot serve control` of root, without a daemon", "its keeper"),
    "server": (
        f"a server that it controls (readings of no use after {serve_kills.STALE_S:g} s)",
        "`wastenot serve control`",
    ),
    "serve-control and server": ("`wastenot serve control` and its server", "the daemon, or its keeper"),
}
DIVISIONS = {
    "ours": "wastenotd's, all jobs told",
    "ours, half": "half told",
    "ours, none": "none told",
    "equal": "equal limits",
    "by power": "by power without limits, known beforehand",
    "known in full": "optimal, all known beforehand",
}
TRIALS = {
    "flood": (
        "`set` with {clients:.0f} clients connected, beside a user who floods the daemon",
        "99 % take at most {p99_ms:.0f} ms, with the stand-in",
    ),
    "hung-gpu": (
        "`set` of {gpus:.0f} GPUs while the driver of one more does not return from a call",
        "99 % take at most {p99_ms:.0f} ms; the user of that one is told after {told_after_s:.0f} s",
    ),
    "container": ("attacks of root in a container with the documented mount", "it can connect, and is allowed nothing"),
    "listeners": (
        "messages without sense, to the daemon, a session and the straggler server (Unix and TCP)",
        "at least {least:,.0f} to each",
    ),
    "driver-faults": (
        "calls of the driver that fail, in setting and in undoing, with each of NVML's {error_codes:.0f} error codes",
        "{left_changed_and_told_until_repaired:.0f} times a GPU stayed changed until the driver worked, and that was told",
    ),
    "kills": ("kills, as in the table below", "{changed_when_killed:.0f} GPUs were changed at that moment"),
    "reboots": (
        "reboots at random moments, of which {run_kept:.0f} leave journals where they are",
        "{changed_when_killed:.0f} with clocks changed; what an administrator sets at boot stays, and no lease does",
    ),
    "outages": (
        "kills of the PostgreSQL server of running jobs",
        "{runs:.0f} runs, of which {ends_kept_until_it_answered:.0f} were kept on this machine until it answered",
    ),
    "full-disk": (
        "writes to a full disk: of an import, a sweep and a job",
        "{import_full:.0f}, {sweep_full:.0f} and {job_full:.0f}",
    ),
}


def safety() -> str:
    """What was tried, how often it failed, and what was measured besides."""
    lines = []
    for name, found in read_json(SAFETY).items():
        tried, besides = TRIALS[name]
        numbers = dict(found["numbers"])
        numbers |= {"least": min(numbers.values()), "p99_ms": 1e3 * numbers.get("p99_s", 0.0)}
        lines.append([tried.format(**numbers), f"{found['count']:,}", f"**{found['failed']}**", besides.format(**numbers)])
    return table("tried | how often | failed | besides", lines)


def budget() -> str:
    """The time that jobs lose, by how a budget is divided."""
    days = [*read_json(KEPT).values()]
    lines = []
    for name, division in DIVISIONS.items():
        mean = sum(day[name]["lost"] for day in days) / len(days)
        over = max(day[name]["most_over_w"] for day in days) / BUDGET_W
        lines.append([division, f"{100.0 * mean:.1f} %", f"{100.0 * max(over, 0.0):.1f} %"])
    return table("division | time lost | most power above the budget", lines)


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


PAGES = (Page("daemon", {"safety": safety, "kills": kills, "budget": budget}),)
