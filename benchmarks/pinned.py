"""Pins the numbers that a refactoring must not change: the JSON documents printed by many whole commands.

    python -m benchmarks.pinned write FILE.json                 # run every command and store its document
    python -m benchmarks.pinned compare BEFORE.json AFTER.json  # numbers that differ, then wording and fields

Commands run as a user would run them, so that the files of two versions can be compared however much code moved in between.
Commands that need the measured sweeps beside the checkout are skipped if these are missing.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.kept import BESIDE, DATA

SYNTHETIC = Path(__file__).parents[1] / "tests" / "kernels" / "page" / "synthetic-sweep.csv"
H200 = DATA / "h200" / "gpt3-xl-4.csv"
TOLERANCE = 1e-6  # relative; a changed order of summation differs by less, a changed number by more
IGNORED = {"digest", "created_at", "imported_at", "made_at", "created_by", "started_at", "version", "bytes"}
FAST = ("--warm-up", "0.5s", "--window", "1s")

Command = tuple[str, ...]


def commands() -> Iterator[tuple[str, Command]]:
    """Names and arguments of the commands, in order; those with a name are run with ``--json`` and pinned."""
    sweeps = {"synthetic": SYNTHETIC}
    if BESIDE.is_dir():
        folder = BESIDE / "rtx3080ti-polybench"
        sweeps |= {
            "once": folder / "sweep.csv",
            "share": folder / "sweep-share.csv",
            "v100": BESIDE / "gpu-dvfs" / "v100.csv",
        }
    for name, path in sweeps.items():
        db = ("--study", f"{name}.db")
        yield "", ("study", "import", str(path), *db, "--device-name", "RTX 3080 Ti", "--workload", name)
        for bound in ("0", "0.01", "0.02", "0.05", "0.1"):
            for scope in ("global", "local"):
                yield f"plan {name} {scope} {bound}", ("kernel", "plan", *db, "--max-slowdown", bound, "--scope", scope)
        for objective in ("edp", "energy", "time"):
            yield f"plan {name} {objective}", ("kernel", "plan", *db, "--objective", objective)
        yield (
            f"plan {name} edp 2 local",
            ("kernel", "plan", *db, "--objective", "edp", "--edp-exponent", "2", "--scope", "local"),
        )
        iteration = ("--granularity", "iteration", "--clock-tolerance", "30")
        yield f"plan {name} iteration", ("kernel", "plan", *db, *iteration)
        yield f"frontier {name}", ("kernel", "frontier", *db)
        if name in {"synthetic", "share"}:
            for scope in ("global", "local"):
                confident = ("--confidence", "0.95", "--max-slowdown", "0.02", "--scope", scope)
                yield f"plan {name} confident {scope}", ("kernel", "plan", *db, *confident)
        if name == "synthetic":
            yield "compare synthetic", ("kernel", "frontier", "--compare", *db)
            yield "plan synthetic pass", ("kernel", "plan", *db, "--granularity", "pass")
        if name in {"share", "v100"}:
            yield f"calibrate {name}", ("device", "calibrate", *db, "--out", f"{name}.toml")
    if BESIDE.is_dir():
        searched = ("--device", "recorded:share.db", "--study", "few.db", "--search", "model", "--share", "0.3")
        yield "search share", ("kernel", "sweep", "share.db", *searched, *FAST)
        yield "plan search", ("kernel", "plan", "--study", "few.db")
    sim = ("--device", "sim:rtx-3080-ti")
    yield "sweep", ("kernel", "sweep", "gpt3-xl", *sim, "--study", "sim.db", "--core-step", "315", *FAST)
    yield "sweep again", ("kernel", "sweep", "gpt3-xl", *sim, "--study", "sim.db", "--core-step", "315", *FAST)
    yield "plan sim", ("kernel", "plan", "--study", "sim.db", "--out", "plan.json")
    yield "validate", ("kernel", "validate", "--study", "sim.db", "--plan", "plan.json", "--repeats", "2")
    yield "transfer", ("kernel", "transfer", "--plan", "plan.json", *sim, "--batch", "40,10", "--repeats", "2")
    yield "refine", ("kernel", "refine", "--study", "sim.db", *sim, "--repeats", "2")
    yield "pairs", ("kernel", "pairs", "--study", "sim.db")
    context = ("kernel", "sweep", "gpt3-xl", "--device", "sim:mi300x", "--study", "context.db", "--core", "1300,2100")
    yield "sweep in context", (*context, "--in-context", *FAST)
    yield "plan context", ("kernel", "plan", "--study", "context.db", "--energies", "context")
    yield "", ("study", "import", str(H200), "--study", "h200.db", "--device-name", "H200", "--workload", "gpt3-xl")
    auto = ("kernel", "sweep", "gpt3-xl", "--device", "sim:h200", "--study", "auto.db", "--clocks", "auto", *FAST)
    yield "sweep auto", auto
    yield "forecast", ("kernel", "forecast", "--study", "auto.db", "--draws", "40", "--core-step", "120")
    for kernel, card in (("gemm:4096", "mi300x"), ("gemm:2048", "h200"), ("gemv:8192", "mi300x")):
        yield f"profile {kernel} {card}", ("profile", "run", kernel, "--device", f"sim:{card}")
    yield "profile after", ("profile", "run", "gemm:2048", "--device", "sim:mi300x", "--after", "gemv:4096x40")
    for card in ("rtx-3080-ti", "mi300x", "h200"):
        yield f"sensor {card}", ("device", "sensor", "--device", f"sim:{card}")
    staged = ("--device", "sim:h200", "--stages", "2", "--micro-batches", "4")
    yield "pipeline", ("pipeline", "plan", "gpt3-xl", *staged, "--study", "pipe.db", "--out", "pipe.json")
    yield (
        "pipeline again",
        ("pipeline", "plan", "--study", "pipe.db", *staged[2:], "--max-slowdown", "0.05", "--frontier", "3"),
    )
    yield "recur", ("job", "replay", "--made-up", "1", "--seeds", "1")
    for phase in ("training", "decode"):
        yield f"workload {phase}", ("kernel", "workloads", "llama-8b", "--phase", phase)


def run_all() -> tuple[dict[str, object], list[str]]:
    """Run all commands; returns the documents of those with a name, and which commands failed: by name, if they have one."""
    documents: dict[str, object] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, command in commands():
            done = subprocess.run(
                [sys.executable, "-m", "wastenot", *command, *(["--json"] if name else [])],
                cwd=folder, capture_output=True, text=True, check=False,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip
            print(f"{done.returncode} {' '.join(command)}", file=sys.stderr, flush=True)
            printed = bool(done.stdout.strip())
            if done.returncode or (name and not printed):
                print(done.stderr[-2000:], file=sys.stderr, flush=True)
                failed.append(name or " ".join(command))
            if name:
                documents[name] = json.loads(done.stdout) if printed else {"failed": done.stderr}
    return documents, failed


def differences(before: object, after: object, path: str = "") -> Iterator[tuple[bool, str]]:
    """Each place where two documents differ by more than rounding: whether numbers do, and a line of text."""
    changed = f"{path}: {before!r}, now {after!r}"
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted((before.keys() | after.keys()) - IGNORED, key=str):
            if key not in after or key not in before:
                yield key not in after, f"{path}.{key}: only {'before' if key in before else 'after'}"
            else:
                yield from differences(before[key], after[key], f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield True, f"{path}: {len(before)} entries, now {len(after)}"
        for index, pair in enumerate(zip(before, after, strict=False)):
            yield from differences(*pair, f"{path}[{index}]")
    elif isinstance(before, int | float) and isinstance(after, int | float):
        if not math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=1e-12):
            yield True, changed
    elif before != after:
        yield not (isinstance(before, str) and isinstance(after, str)), changed


def main(verb: str, *files: str) -> None:
    """Write or compare.

    Writing exits with 1 if a command failed, after the file is written; a comparison exits with 1 if numbers differ or are
    gone, not for wording or added fields.
    """
    if verb == "write":
        documents, failed = run_all()
        Path(files[0]).write_text(json.dumps(documents, indent=1), encoding="utf-8")
        sys.exit(f"{files[0]} is written, but these commands failed: {', '.join(failed)}" if failed else None)
    before, after = (json.loads(Path(file).read_text(encoding="utf-8")) for file in files)
    numbers: list[str] = []
    wording: list[str] = []
    for is_number, line in differences(before, after):
        (numbers if is_number else wording).append(line)
    print(f"{len(before)} documents; numbers that differ: {len(numbers)}", *numbers, sep="\n")
    print(f"wording and added fields that differ: {len(wording)}", *wording, sep="\n")
    sys.exit(1 if numbers else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
