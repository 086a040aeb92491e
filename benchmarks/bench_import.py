"""How long `wastenot study import` takes for a CSV file of a million rows: the whole command, as it is typed."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.verdict import Verdict
from wastenot.study.store import open_study

ROWS = 1_000_000
_ROWS_PER_KERNEL = 1000


def make_csv(path: Path, rows: int) -> None:
    rng = random.Random(1)
    with path.open("w", encoding="utf-8") as stream:
        stream.write("kernel,count,core_mhz,memory_mhz,time_s,energy_j\n")
        for row in range(rows):
            kernel, setting = divmod(row, _ROWS_PER_KERNEL)
            clocks = f"{210 + 15 * (setting % 120)},{(405, 810, 5001, 9251, 9501)[setting % 5]}" if setting else ","
            stream.write(f"layer.{kernel}.attention.qkv,24,{clocks},{rng.random()!r},{rng.random()!r}\n")


def main(verdict: Verdict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.csv"
        make_csv(file, ROWS)
        study = Path(folder) / "study.db"
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "wastenot", "study", "import", file, "--study", study]
        subprocess.run(command, check=True, capture_output=True)
        took_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        assert len(open_study(study).read()) == ROWS
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    print(f"  {took_s:.2f} s, of which the processor works {cpu_s:.2f} s")
    verdict.at_most(f"import of {ROWS:,} rows, the whole command: CPU seconds", cpu_s, 8)
