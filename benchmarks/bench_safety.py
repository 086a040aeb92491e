"""What must hold whatever clients, drivers, disks and other users do, tried many times each, on the stand-in for NVML.

    python -m benchmarks safety
    python -m benchmarks.bench_safety [NAME ...]      # the same, of those named

Each trial is a module of ``benchmarks/safety``, which says what it does. It prints how often it tried and what failed; what
it found replaces what ``data/safety.json`` says of it, which the page of the daemon shows.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from typing import Final

from benchmarks.kept import DATA, keep
from benchmarks.verdict import Verdict, run_alone

SAFETY = DATA / "safety.json"
NAMES: Final = (
    "flood", "hung-gpu", "container", "listeners", "driver-faults", "kills", "reboots", "outages", "full-disk",
)  # fmt: skip


def main(verdict: Verdict, names: tuple[str, ...] = NAMES) -> None:
    for name in names:
        found = import_module(f"benchmarks.safety.{name.replace('-', '_')}").main()
        for line in found.failed:
            print(f"  {line}", flush=True)
        numbers = ", ".join(f"{key} {value:g}" for key, value in found.numbers.items())
        verdict.at_most(f"{name}: failures in {found.count:,} attempts ({numbers})", len(found.failed), 0)
        made = asdict(found) | {
            "failed": len(found.failed),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": f"{os.cpu_count()} cores, {platform.system()}",
        }
        before = json.loads(SAFETY.read_text(encoding="utf-8")) if SAFETY.exists() else {}
        keep(SAFETY, {each: made if each == name else before[each] for each in NAMES if each in before or each == name})


if __name__ == "__main__":
    run_alone(main, tuple(sys.argv[1:]) or NAMES)
