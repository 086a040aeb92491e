"""Whole commands as a user types them: seconds of CPU with those of child processes, seconds of wall time, peak memory.

    python -m benchmarks.bench_commands [--against SRC] [--times N] [ROW ...]

``--against`` runs each row with the package in another folder, too, such as ``src`` of an earlier commit, the two
interleaved, and prints both and the ratio of CPU seconds, which other programs on the machine disturb least. Rows are chosen
by their first letters. The limits are for CPU seconds; the median of the runs counts, of peak memory the most.

Rows of ``serve simulate`` (a cluster, one engine) have a cache of compiled code that is empty the first time. The second
time the command is the same; ``new runs`` has the cache, but a study without runs.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import bench_plan
from benchmarks.kept import ROOT
from benchmarks.verdict import Verdict, run_alone
from wastenot.core.samples import FOLDER

ENGINE = ROOT / "data" / "serving" / "llama-8b-sim-h200.json"
BARE = 0.25
"""CPU seconds that a command may take which computes nothing, beyond those of ``python -c pass``."""
_WASTENOT = ("-m", "wastenot")


@dataclass(frozen=True)
class Row:
    """A command.

    Attributes:
        name: of the row.
        arguments: of Python; files are named from the folder that it runs in.
        cpu_s: at most.
        gigabytes: at most.
        prepare: makes what the command reads, in that folder, and takes away what it wrote before.
        stored: case of :mod:`benchmarks.bench_plan` whose study the same package writes, as one may not read another's.
        environment: of the process, beside the user's.
        beyond_python: whether the time of Python's own start is not counted.
    """

    name: str
    arguments: tuple[str, ...]
    cpu_s: float
    gigabytes: float = 1.0
    prepare: Callable[[Path], None] = lambda folder: None
    stored: str | None = None
    environment: tuple[tuple[str, str], ...] = ()
    beyond_python: bool = False


@dataclass(frozen=True)
class Used:
    """What one run of a command used."""

    cpu_s: float
    wall_s: float
    gigabytes: float


def _without(*names: str) -> Callable[[Path], None]:
    """Takes away folders and files."""

    def prepare(folder: Path) -> None:
        for name in names:
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).unlink(missing_ok=True)

    return prepare


def _import(folder: Path) -> None:
    """A million rows, a thousand for each kernel."""
    _without("million.db")(folder)
    if (folder / "million.csv").exists():
        return
    rng = random.Random(1)
    with (folder / "million.csv").open("w", encoding="utf-8") as stream:
        stream.write("kernel,count,core_mhz,memory_mhz,time_s,energy_j\n")
        for row in range(1_000_000):
            kernel, setting = divmod(row, 1000)
            clocks = f"{210 + 15 * (setting % 120)},{(405, 810, 5001, 9251, 9501)[setting % 5]}" if setting else ","
            stream.write(f"layer.{kernel}.attention.qkv,24,{clocks},{rng.random()!r},{rng.random()!r}\n")


def _scenario(folder: Path, *gone: str) -> None:
    """The example's cluster and policies, a minute of its traffic, one seed."""
    _without(*gone)(folder)
    example = (FOLDER / "scenario.toml").read_text(encoding="utf-8")
    for was, becomes in (
        ('"sample:engine.json"', f'"{ENGINE}"'),
        ("duration_s = 600.0", "duration_s = 60.0"),
        ("seeds = [0, 1]", "seeds = [0]"),
    ):
        assert was in example, was
        example = example.replace(was, becomes, 1)
    (folder / "scenario.toml").write_text(example, encoding="utf-8")


def _trace(folder: Path, *gone: str) -> None:
    """Two minutes of requests with lengths like those of conversations, ten a second."""
    _without(*gone)(folder)
    rng = np.random.default_rng(2026)
    at = np.cumsum(rng.exponential(0.1, 1200))
    prompt, output = (np.clip(rng.lognormal(np.log(m), 0.8, 1200), 1, 4000).astype(int) for m in (1000, 130))
    rows = [f"{when:.6f},{one},{other}" for when, one, other in zip(at, prompt, output, strict=True)]
    (folder / "requests.csv").write_text(
        "\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n", encoding="utf-8"
    )


def _plan(name: str, cpu_s: float, *arguments: str) -> Row:
    case = next(each for each in bench_plan.CASES if each.name == name)
    study = f"{case.kernels}-{case.effective}.db"
    command = (*_WASTENOT, "kernel", "plan", "--study", study, *arguments)
    return Row(" ".join((f"plan of {name} x 100", *arguments)), command, cpu_s, 1.5, stored=name)


def _completion(words: str, index: int) -> Row:
    environment = {"_WASTENOT_COMPLETE": "complete_bash", "COMP_WORDS": words.replace(" ", "\n"), "COMP_CWORD": str(index)}
    return Row(f"completion of '{words}'", _WASTENOT, BARE, environment=tuple(environment.items()), beyond_python=True)


_CLUSTER = (*_WASTENOT, "serve", "simulate", "scenario.toml", "--page", "cluster.html")
_ENGINE = (*_WASTENOT, "serve", "simulate", str(ENGINE), "--trace", "requests.csv", "--load", "50%", "--page", "one.html")
_KEPT = (("NUMBA_CACHE_DIR", "compiled"),)
ROWS = (
    Row("help", (*_WASTENOT, "--help"), BARE, beyond_python=True),
    Row("version", (*_WASTENOT, "--version"), BARE, beyond_python=True),
    _completion("wastenot ker", 1),
    _completion("wastenot kernel plan --study ", 3),
    Row("demo", (*_WASTENOT, "demo", "--no-open", "--out", "demo"), 12.0, prepare=_without("demo")),
    Row("cluster, first", _CLUSTER, 15.0, prepare=lambda at: _scenario(at, "scenario.db", "compiled"),
        environment=_KEPT),
    Row("cluster, second", _CLUSTER, 3.0, environment=_KEPT),
    Row("cluster, new runs", _CLUSTER, 15.0, prepare=lambda at: _scenario(at, "scenario.db"), environment=_KEPT),
    Row("engine, first", _ENGINE, 15.0, prepare=lambda at: _trace(at, "compiled"), environment=_KEPT),
    Row("engine, second", _ENGINE, 3.0, environment=_KEPT),
    Row("import of a million rows", (*_WASTENOT, "study", "import", "million.csv", "--study", "million.db"), 8.0, 4.0,
        _import),
    *(_plan(each.name, each.cpu_s) for each in bench_plan.CASES),
    _plan("10,000 kernels", 26.0, "--confidence", "0.95"),
    Row("pipeline whose settings last", (*_WASTENOT, "pipeline", "plan", str(FOLDER / "profile.csv"), "--micro-batches",
        "48", "--waiting-power", "70", "--max-slowdown", "2%", "--switch-time", "150ms", "--out", "pipeline.json"), 30.0),
)  # fmt: skip


def used(row: Row, folder: Path, source: Path) -> Used:
    """One run of a row, in a folder, with the package in another one."""
    row.prepare(folder)
    environment = {**os.environ, "PYTHONPATH": str(source), **dict(row.environment)}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")  # as an installed package has it
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if row.stored is not None:
        making = [sys.executable, "-m", "benchmarks.bench_plan", "make", ".", row.stored]
        search = os.pathsep.join([str(source), str(ROOT)])
        subprocess.run(making, cwd=folder, env={**environment, "PYTHONPATH": search}, stdout=subprocess.DEVNULL, check=True)
    with (folder / "said").open("wb") as said:
        began = time.perf_counter()
        running = subprocess.Popen(
            [sys.executable, *row.arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=said
        )
        _, status, resources = os.wait4(running.pid, 0)
        wall_s = time.perf_counter() - began
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        sys.exit(f"failed: {row.name}: {(folder / 'said').read_text(encoding='utf-8')}")
    return Used(resources.ru_utime + resources.ru_stime, wall_s, resources.ru_maxrss * 1024 / 1e9)


def measure(row: Row, folders: dict[Path, Path], times: int) -> dict[Path, Used]:
    """The median of several runs with each package, interleaved.

    Args:
        row: the command.
        folders: that it runs in, by package.
        times: how often.
    """
    bare = Row("python", ("-c", "pass"), BARE)
    runs: dict[Path, list[Used]] = {source: [] for source in folders}
    if row.cpu_s <= BARE:  # whatever runs first compiles bytecode
        for source, folder in folders.items():
            used(row, folder, source)
    for _ in range(times):
        for source, folder in folders.items():
            own_s = used(bare, folder, source).cpu_s if row.beyond_python else 0.0
            run = used(row, folder, source)
            runs[source].append(Used(run.cpu_s - own_s, run.wall_s, run.gigabytes))
    return {
        source: Used(
            float(np.median([each.cpu_s for each in of])),
            float(np.median([each.wall_s for each in of])),
            max(each.gigabytes for each in of),
        )
        for source, of in runs.items()
    }


def main(verdict: Verdict, against: Path | None = None, times: int = 3, names: tuple[str, ...] = ()) -> None:
    source = ROOT / "src"
    with tempfile.TemporaryDirectory() as work:
        folders = {}
        for each in (source,) if against is None else (against.resolve(), source):
            folders[each] = Path(work) / str(len(folders))
            folders[each].mkdir()
        for row in ROWS:
            if names and not row.name.startswith(names):
                continue
            found = measure(row, folders, times)
            this = found[source]
            before = next(iter(found.values()))
            was = f", before {before.cpu_s:.2f} s: {this.cpu_s / before.cpu_s:.2f} of it" if against is not None else ""
            print(
                f"  {row.name}: {this.cpu_s:.2f} s of CPU, {this.wall_s:.1f} s of wall time, {this.gigabytes:.2f} GB{was}",
                flush=True,
            )
            beyond = " beyond Python's own start" if row.beyond_python else ""
            verdict.at_most(f"{row.name}: seconds of CPU{beyond}", this.cpu_s, row.cpu_s)
            verdict.at_most(f"{row.name}: GB", this.gigabytes, row.gigabytes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="SRC")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    asked = parser.parse_args()
    run_alone(main, asked.against, asked.times, tuple(asked.rows))
