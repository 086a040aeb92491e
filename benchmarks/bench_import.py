"""How long it takes to import a million rows from CSV into a study."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from benchmarks.verdict import Verdict
from wastenot.study.store import open_study
from wastenot.study.sweep_file import read_sweep

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
        began = time.perf_counter()
        sweep = read_sweep(file)
        read = time.perf_counter()
        study = open_study(Path(folder) / "study.db", create=True)
        study.add(sweep, source=file.name)
        stored = time.perf_counter()
        assert len(study.read(sweep.workload)) == ROWS
        fetched = time.perf_counter()
    print(f"  read {read - began:.2f} s, store {stored - read:.2f} s, fetch back {fetched - stored:.2f} s")
    verdict.at_most(f"import of {ROWS:,} rows: seconds", stored - began, 10)
