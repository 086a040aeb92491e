"""The job of the tutorial, for real: digits learned on the CPU night after night, at less and less cost."""

import json
import os
import statistics
import subprocess
import sys

import pytest

from benchmarks.kept import ROOT
from docs.make.blocks import File, steps_of
from docs.make.page import DOCS
from wastenot.jobs.tables.store import JobStore
from wastenot.study.store import open_study

NIGHTS = 24


@pytest.mark.slow
def test_nights_come_to_cost_less_than_the_default(tmp_path):
    pytest.importorskip("sklearn")
    (program,) = (step for step in steps_of(DOCS / "tutorials" / "jobs.md") if isinstance(step, File))
    (tmp_path / program.name).write_text(program.text)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def run(*command):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=240,
        )
        return done.stdout

    for nights in ("1", str(NIGHTS - 1)):  # each process learns of those before it
        run(program.name, nights)
    stored = JobStore(open_study(str(tmp_path / "jobs.db"))).read("digits")
    assert [each.number for each in stored.runs] == list(range(1, NIGHTS + 1))
    default, *learning = stored.runs
    assert (default.batch_size, default.outcome) == (stored.terms.default, "reached")
    assert len({each.batch_size for each in learning}) > 1

    def spent_for_a_success(runs):
        return sum(each.time_s for each in runs) / sum(each.outcome == "reached" for each in runs)

    assert spent_for_a_success(stored.runs[-10:]) < 0.75 * default.time_s
    assert spent_for_a_success(stored.runs[-10:]) < spent_for_a_success(stored.runs[:10])
    assert statistics.mode(each.batch_size for each in stored.runs[-10:]) > stored.terms.default

    document = json.loads(
        run("-m", "wastenot", "job", "show", "digits", "--study", "jobs.db", "--json", "--page", "digits.html")
    )
    assert document["name"] == "digits"
    assert "digits" in (tmp_path / "digits.html").read_text()
