"""The same input gives the same output to the last byte: whatever the order of sets, the threads, and the load."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from testbed.few_kernels import write_few_kernels
from testbed.job_traces import POWER, TRAIN
from testbed.pipeline_profiles import write_profile
from testbed.printed import printed
from testbed.serving_inputs import SCENARIO, SERVERS, STEPS
from testbed.toy_gpu import TOY

ROOT = Path(__file__).parents[2]
WHEN = ("made_at", "measured_at")
"""The times of day that documents hold, which nothing else depends on."""

COARSE = ("--device", "sim:toy.toml", "--core-step", "600", "--memory", "9501", "--warm-up", "0.5s", "--window", "0.5s",
          "--json")  # fmt: skip
CLOCKS = ("--study", "s.db", *COARSE)
OF_FEW = ("--study", "few.db", *COARSE)
PLAN = ("kernel", "plan", "--study", "s.db", "--max-slowdown", "2%", "--json", "--out", "plan.json")
PROFILE = ("pipeline", "plan", "profile.csv", "--waiting-power", "70W", "--json", "--micro-batches")
ENGINE = ("serve", "profile", "steps.csv", "--model", "mine", "--device", "card", "--out", "engine.json", "--json")
JOBS = ("job", "replay", "train.csv", "power.csv", "--target", "0.9", "--default", "128", "--json")

COMMANDS = (
    ("kernel", "sweep", "gpt3-small", *CLOCKS),
    PLAN,
    ("study", "export", "sweep.csv", "--study", "s.db", "--json"),
    ("kernel", "plan", "--study", "s.db", "--objective", "edp", "--granularity", "pass", "--json"),
    ("kernel", "pairs", "--study", "s.db", "--device", "sim:h200", "--json"),
    ("kernel", "frontier", "--study", "s.db", "--json"),
    ("kernel", "forecast", "--study", "s.db", "--gpu", "toy.toml", "--draws", "40", "--json", "--out", "forecast.json"),
    ("kernel", "validate", "--study", "s.db", "--plan", "plan.json", "--repeats", "2", "--out", "checked.json", "--json"),
    ("kernel", "transfer", "--plan", "plan.json", "--device", "sim:toy.toml", "--batch", "4", "--repeats", "2", "--json"),
    ("kernel", "refine", "--study", "s.db", "--device", "sim:toy.toml", "--repeats", "1", "--json"),
    ("kernel", "sweep", "few.json", *OF_FEW),
    ("kernel", "frontier", "--compare", "--study", "few.db", "--json"),
    ("kernel", "iteration", "--study", "few.db", "--power-limit", "200W", "--json"),
    ("device", "calibrate", "--study", "few.db", "--out", "twin.toml", "--power-limit", "350", "--base", "toy.toml",
     "--json"),
    ("pipeline", "plan", "gpt3-small", "--stages", "2", "--micro-batches", "3", "--device", "sim:h200", "--partition",
     "least-energy", "--as-measured", "--max-slowdown", "5%", "--json"),
    (*PROFILE, "4", "--straggler", "20%", "--switch-time", "5ms"),
    (*PROFILE, "4", "--frontier", "4", "--csv", "frontier.csv", "--out", "pipeline.json"),
    ("profile", "run", "gemm:8192", "--device", "sim:mi300x", "--runs", "60", "--executions", "20", "--json"),
    ("device", "sensor", "--device", "sim:rtx-3080-ti", "--budget", "20s", "--out", "sensors.json", "--json"),
    ("device", "latency", "--device", "sim:v100", "--what", "core", "--core", "802.5,1380", "--relative-error", "0.1",
     "--json"),
    ENGINE,
    ("serve", "simulate", "engine.json", "--trace", "trace.csv", "--step-tokens", "1024", "--json"),
    ("serve", "simulate", "scenario.toml", "--seeds", "2", "--processes", "1", "--json", "--out", "cluster.json"),
    ("serve", "recommend", "table.csv", "--itl", "50ms", "--json"),
    (*JOBS, "--seeds", "2", "--processes", "2"),
)  # fmt: skip


def prepared(folder: Path) -> Path:
    """A folder with all that the commands read."""
    folder.mkdir()
    shutil.copy(TOY, folder)
    write_few_kernels(folder / "few.json")
    write_profile(folder / "profile.csv")
    random = np.random.default_rng(1)
    trace = [f"{at:.3f},{random.integers(20, 900)},{random.integers(2, 60)}" for at in np.sort(random.uniform(0, 60, 80))]
    texts = {
        "steps.csv": STEPS, "table.csv": SERVERS, "train.csv": TRAIN, "power.csv": POWER, "scenario.toml": SCENARIO,
        "trace.csv": "\n".join(["arrival_s,prompt_tokens,output_tokens", *trace]),
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def written(folder: Path, commands: tuple[tuple[str, ...], ...], *, seed: int, threads: int) -> dict[str, str]:
    """What the commands print and write but studies, by file, without times of day."""
    libraries = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    (folder / "commands.json").write_text(json.dumps(commands))
    done = subprocess.run(
        [sys.executable, "-m", "testbed.several_verbs", "commands.json"],
        cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | dict.fromkeys(libraries, str(threads))
        | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "COLUMNS": "120"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed.extend(json.loads(each.read_text(encoding="utf-8")) for each in folder.glob("[0-9][0-9]-*.json"))
    time_of_day = re.compile(rf'"(?:{"|".join(WHEN)})": "[^"]*"')
    files = sorted(each for each in folder.rglob("*") if each.suffix in {".json", ".csv", ".toml"})
    return {str(each.relative_to(folder)): time_of_day.sub("", each.read_text(encoding="utf-8")) for each in files}


BUSY = """
import time
while True:
    time.sleep(0.03)
    until_s = time.perf_counter() + 0.004
    while time.perf_counter() < until_s:
        pass
"""


@contextmanager
def load() -> Iterator[None]:
    """As many processes as there are cores, busy now and then, so that what runs beside them waits for its turn."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


@pytest.mark.slow
def test_whatever_the_machine_is_at_the_output_is_the_same(tmp_path):
    alone = written(prepared(tmp_path / "alone"), COMMANDS, seed=0, threads=1)
    with load():
        again = written(prepared(tmp_path / "again"), COMMANDS, seed=1, threads=4)
    assert len(alone) > len(COMMANDS)
    different = [name for name in alone.keys() | again.keys() if alone.get(name) != again.get(name)]
    assert not different
