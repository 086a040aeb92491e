"""How long a million rows take from CSV into a study: python benchmarks/bench_import.py [ROWS] [DATABASE_URL]."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

from wastenot.study.store import open_study
from wastenot.study.sweep_file import read_sweep

_ROWS_PER_KERNEL = 1000


def make_csv(path: Path, rows: int) -> None:
    rng = random.Random(1)
    with path.open("w", encoding="utf-8") as stream:
        stream.write("kernel,count,core_mhz,memory_mhz,time_s,energy_j\n")
        for row in range(rows):
            kernel, way = divmod(row, _ROWS_PER_KERNEL)
            clocks = f"{210 + 15 * (way % 120)},{(405, 810, 5001, 9251, 9501)[way % 5]}" if way else ","
            stream.write(f"layer.{kernel}.attention.qkv,24,{clocks},{rng.random()!r},{rng.random()!r}\n")


def report(verb: str, rows: int, seconds: float) -> None:
    print(f"{verb:5} {rows:>9} rows {seconds:6.2f} s {rows / seconds:>9.0f} rows/s")


def main(rows: int = 1_000_000, where: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.csv"
        make_csv(file, rows)
        began = time.perf_counter()
        sweep = read_sweep(file)
        read = time.perf_counter()
        report("read", rows, read - began)
        study = open_study(where or Path(folder) / "study.db", create=True)
        study.add(sweep, source=file.name)
        stored = time.perf_counter()
        report("store", rows, stored - read)
        report("both", rows, stored - began)
        fetched = study.read(sweep.workload)
        assert len(fetched) == len(sweep)
        report("fetch", rows, time.perf_counter() - stored)


if __name__ == "__main__":
    main(*([int(sys.argv[1])] if len(sys.argv) > 1 else []), *sys.argv[2:3])
