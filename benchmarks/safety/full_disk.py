"""A disk that is full at every write of a study and of a job: a small file system in memory, with one block more each time.

A study takes in a file, a GPU is swept, and a job runs. What cannot be written is told in a line, without a traceback, and
what was stored before is still there; with room again, the same succeeds.
"""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import wastenot as wn
from benchmarks.safety.trial import Trial
from testbed.sweeps import SMALL_CSV, large_sweep
from wastenot.core.errors import WastenotError
from wastenot.jobs.tables.store import JobStore
from wastenot.study.store import open_study
from wastenot.study.sweep_file import import_sweep, write_sweep

_BLOCK, _SIZE, _MOST_BLOCKS = 4096, "8m", 500
_ROWS = 3000  # of the sweep that is imported
_CORES_MHZ = (900, 1200, 1500)


def main() -> Trial:
    """Try with each number of blocks until one is enough; needs root, which may mount."""
    failed: list[str] = []
    counts: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        disk = Path(name, "disk")
        disk.mkdir()
        for kind, prepare, do in (("import", _import_small, _import), ("sweep", _import_small, _sweep), ("job", _job, _job)):
            full = 0
            for blocks in range(_MOST_BLOCKS):
                subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "full", disk], check=True)
                try:
                    prepare(disk / "study.db")
                    was_full, wrong = _tried(disk / "study.db", blocks, do)
                finally:
                    subprocess.run(["umount", disk], check=True)
                failed += [f"{kind} with room for {blocks} blocks: {each}" for each in wrong]
                full += was_full
                if not was_full:
                    break
            counts[f"{kind}_full"] = full
    return Trial(int(sum(counts.values())), failed, counts)


def _tried(study: Path, blocks: int, do: Callable[[Path], None]) -> tuple[bool, list[str]]:
    """Whether the disk was too small, and what went wrong."""
    before, wrong, said = _stored(study), list[str](), io.StringIO()
    filler = study.with_name("filler")
    with filler.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, max(shutil.disk_usage(study.parent).free - blocks * _BLOCK, 1))
    told = False
    with redirect_stderr(said):
        try:
            do(study)
        except WastenotError:
            told = True
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")
    told |= "full" in said.getvalue()
    if "Traceback" in said.getvalue():
        wrong.append(f"a traceback: {said.getvalue()[-500:]}")
    filler.unlink()
    with sqlite3.connect(study) as connection:
        ((sound,),) = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    if sound != "ok":
        wrong.append(f"the study is corrupted: {sound}")
    after = _stored(study)
    if after[: len(before)] != before:
        wrong.append(f"what was stored before is lost: {before} became {after}")
    if told and not wrong:
        try:
            do(study)
        except Exception as error:
            wrong.append(f"with room again: {type(error).__name__}: {error}")
    elif len(after) == len(before):
        wrong.append("nothing was stored, and nothing told")
    return told, wrong


def _stored(study: Path) -> list[tuple[object, ...]]:
    """What a study holds: rows of its workloads, and the ends of the runs of its job."""
    opened = open_study(study)
    rows = [(each.name, opened.read(each.name).time_s.tolist()) for each in opened.summary().workloads]
    store = JobStore(opened)
    runs = store.read("nightly").runs if "nightly" in store.names() else ()
    return [*sorted(rows, key=lambda row: row[0] != "small"), *((run.number, run.outcome, run.epochs) for run in runs)]


def _import_small(study: Path) -> None:
    csv = study.with_name("small.csv")
    csv.write_text(SMALL_CSV)
    import_sweep(csv, study, device="sim:h200", origin="simulated")
    write_sweep(large_sweep(_ROWS), study.with_name("large.csv"))


def _import(study: Path) -> None:
    import_sweep(study.with_name("large.csv"), study)


def _sweep(study: Path) -> None:
    wn.sweep("gpt3-small", "sim:h200", study, granularity="iteration", clocks=wn.Grid(core_mhz=_CORES_MHZ))


def _job(study: Path) -> None:
    with wn.job("nightly", study=study, batch_sizes=[8, 16], default=8, target=0.5, device="cpu", settings=()) as run:
        run.epoch(0.1)
        run.epoch(0.9)
