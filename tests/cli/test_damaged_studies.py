"""A study whose file is damaged is said to be, in a line, by whatever reads it; no command ends with a traceback."""

import io
import random
import sqlite3
from contextlib import redirect_stderr, redirect_stdout, suppress

import pytest

import wastenot as wn
from testbed.sweeps import SMALL_CSV
from wastenot.cli.main import run
from wastenot.core.errors import WastenotError
from wastenot.study.sweep_file import import_sweep


def train(study):
    with wn.job("nightly", study=study, batch_sizes=[8, 16], default=8, target=0.5, device="cpu", settings=()) as job:
        job.epoch(0.1)
        job.epoch(0.9)


READERS = {
    "show": lambda study: run(["show", str(study)]),
    "job list": lambda study: run(["job", "list", "--study", str(study)]),
    "job show": lambda study: run(["job", "show", "nightly", "--study", str(study)]),
    "kernel plan": lambda study: run(["kernel", "plan", "--study", str(study), "--workload", "gpt3-small"]),
    "wn.job": train,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the file of a study of workloads, sweeps and jobs holds."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "small.csv").write_text(SMALL_CSV)
    study = folder / "study.db"
    with redirect_stderr(io.StringIO()):
        import_sweep(folder / "small.csv", study, device="sim:h200", origin="simulated")
        wn.sweep("gpt3-small", "sim:h200", study, granularity="iteration", clocks=wn.Grid(core_mhz=(900, 1200, 1500)))
        train(study)
        train(study)
    return study.read_bytes()


def said(reader, study):
    """What a reader says; what it raises besides errors for people fails the test."""
    text = io.StringIO()
    with redirect_stderr(text), redirect_stdout(text):
        try:
            READERS[reader](study)
        except WastenotError as error:
            print(error)
    assert "Traceback" not in text.getvalue()
    return text.getvalue()


DAMAGED = "is damaged; restore a copy, or import its files into a new study"


@pytest.mark.parametrize(
    ("place", "value", "reader"),
    [
        ("study.created_by", b"\x80abc", "show"), ("imports.origin", b"\xff\x00", "show"), ("sweeps.share", "{}", "show"),
        ("sweeps.share", 0.1, "show"), ("job_runs.core_mhz", "x", "job show"), ("job_terms.eta", 1e308, "job list"),
        ("job_terms.default_batch_size", 7, "job show"), ("job_speeds.epoch_time_s", "[]", "wn.job"),
        ("job_speeds.epoch_time_s", "[]", "job list"), ("job_terms.within_s", b"\xff", "job list"),
        ("jobs.target", "[]", "job show"),
    ],
)  # fmt: skip
def test_a_value_that_wastenot_never_writes_is_damage(whole, tmp_path, place, value, reader):
    study, (table, column) = tmp_path / "study.db", place.split(".")
    study.write_bytes(whole)
    with sqlite3.connect(study) as connection:
        assert connection.execute(f"UPDATE wastenot_{table} SET {column} = ?", (value,)).rowcount > 0
    connection.close()
    assert DAMAGED in said(reader, study)


@pytest.mark.parametrize("reader", READERS)
def test_a_name_that_is_no_text_is_damage(whole, tmp_path, reader):
    study = tmp_path / "study.db"
    study.write_bytes(whole.replace(b"CREATE TABLE wastenot_", b"CREATE TABLF wasten\xbdt_"))
    assert DAMAGED in said(reader, study)


def test_a_workload_without_kernels_is_shown(whole, tmp_path):
    study = tmp_path / "study.db"
    study.write_bytes(whole)
    with sqlite3.connect(study) as connection:
        connection.execute("DELETE FROM wastenot_kernels")
    connection.close()
    assert "gpt3-small" in said("show", study)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_damage_anywhere_is_no_traceback(whole, tmp_path, seed):
    rng, content = random.Random(seed), bytearray(whole)
    start, length = rng.randrange(100, len(content)), rng.choice([1, 64, 4096])
    kind = rng.choice(["noise", "zeros", "many", "cut", "page"])
    if kind == "cut":
        del content[start:]
    elif kind == "many":
        for _ in range(200):
            content[rng.randrange(100, len(content))] = rng.randrange(256)
    elif kind == "page":
        content[start // 4096 * 4096 :][:4096] = content[-4096:]
    else:
        content[start : start + length] = bytes(length) if kind == "zeros" else rng.randbytes(length)
    study = tmp_path / "study.db"
    for reader in READERS:
        study.write_bytes(content)
        for beside in ("-journal", "-wal"):
            study.with_name(study.name + beside).unlink(missing_ok=True)
        with suppress(SystemExit):
            said(reader, study)
