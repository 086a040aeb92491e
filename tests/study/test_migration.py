"""Studies that earlier versions wrote (versions/make.sh) open here: with every number, whoever else opens or kills."""

from __future__ import annotations

import filecmp
import lzma
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import MetaData, create_engine, event, inspect, select, text
from sqlalchemy.engine import Engine

from testbed.sweeps import small_sweep
from wastenot.core.errors import StudyError
from wastenot.jobs.tables.records import JobTerms
from wastenot.jobs.tables.store import JobStore
from wastenot.planning.planner import plan
from wastenot.serving.tables.cluster_store import ClusterStore, StoredClusterRun
from wastenot.serving.tables.store import ServingStore
from wastenot.study import database as databases, lease, sqlite_copy
from wastenot.study.address import parse_address
from wastenot.study.schema import SCHEMA_VERSION
from wastenot.study.store import open_study
from wastenot.study.sweep_file import export_sweep

VERSIONS = Path(__file__).parent / "versions"
WITH_JOBS_ONLY = Path(__file__).parents[2] / "data/h200/jobs/jobs.db.xz"
WORKLOADS = {"imported": "", "gpt3-xl": "-gpt3-xl", "step-step": "-step"}
ALL = (2, 3, 4, 5, 6, 7, 8)


def put(version, where):
    """Lay the study of a version where tests find it: a file, or the database of a URL."""
    if "://" not in where:
        packed = WITH_JOBS_ONLY if version == 6 else VERSIONS / f"v{version}.db.xz"
        Path(where).write_bytes(lzma.decompress(packed.read_bytes()))
        return
    engine = create_engine(parse_address(where).url)
    with closing(engine.raw_connection()) as connection:
        connection.driver_connection.execute(lzma.decompress((VERSIONS / f"v{version}.sql.xz").read_bytes()))
        connection.commit()
    engine.dispose()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.db"


def rows_of(engine):
    """All that a study holds but its version, by table."""
    found = MetaData()
    found.reflect(engine)
    with engine.connect() as connection:
        rows = {
            name: [row._asdict() for row in connection.execute(select(table).order_by(*table.primary_key))]
            for name, table in found.tables.items()
        }
    for row in rows["wastenot_study"]:
        del row["schema_version"]
    return rows


def shape_of(engine):
    """Columns with their types, keys and indices, by table."""
    look = inspect(engine)
    return {
        name: (
            sorted((each["name"], str(each["type"]), each["nullable"]) for each in look.get_columns(name)),
            look.get_pk_constraint(name)["constrained_columns"],
            sorted(map(str, look.get_foreign_keys(name))),
            sorted(map(str, look.get_unique_constraints(name))),
        )
        for name in look.get_table_names()
    }


def in_both(versions):
    """Parameters of tests: versions in either database, in PostgreSQL only the oldest where time is short."""
    slow = [pytest.param("postgresql", version, marks=pytest.mark.slow) for version in versions[1:] if version != 6]
    return [*(("sqlite", version) for version in versions), ("postgresql", versions[0]), *slow]  # 6 is a file alone


@pytest.mark.parametrize(("where", "version"), in_both(ALL), indirect=["where"])
def test_every_version_opens_with_its_numbers(where, raw, version, tmp_path, capsys):
    put(version, where)
    before = rows_of(raw)
    study = open_study(where, busy_timeout_s=0.2)
    assert study.summary().schema_version == SCHEMA_VERSION
    assert f"migrated to schema {SCHEMA_VERSION}" in capsys.readouterr().err
    if version == 6:
        assert all(JobStore(study).read(name).runs for name in JobStore(study).names())
    else:
        for workload, ending in WORKLOADS.items():
            export_sweep(study, tmp_path / "export.csv", workload, state="ssp")
            assert (tmp_path / "export.csv").read_bytes() == (VERSIONS / f"v{version}{ending}.csv").read_bytes()
        assert plan(study, workload="gpt3-xl", granularity="pass", max_slowdown=0.1).assignments
        assert study.read("step-step").captured_on == (None if version == 2 else "cpu")
        assert study.captured("step-step", "ssp").keys() == {
            kernel.name for kernel in study.read("step-step", "ssp").kernels
        }
    after = rows_of(raw)
    captured_on = {row["workload_id"]: row["device"] for row in before.pop("wastenot_captured_on", ())}
    for row in before["wastenot_workloads"]:
        row["captured_on"] = captured_on.get(row["id"])
    for row in before["wastenot_measurements"]:
        row["profile"] = None
    for row in before.get("wastenot_job_terms", ()):
        row["learning_budget"] = None
    assert {name: after.pop(name) for name in before} == before
    assert not any(after.values())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("where", "version"), in_both([2, 3, 5, 7, 8]), indirect=["where"])
def test_a_migrated_study_has_the_tables_of_a_new_one_and_takes_all_that_it_takes(where, raw, version, tmp_path):
    put(version, where)
    study = open_study(where, busy_timeout_s=0.2)
    study.add(small_sweep(device="sim:toy.toml"), source="a test")
    new = open_study(tmp_path / "new.db", create=True)
    new.add(small_sweep(), source="a test")
    fresh = create_engine(f"sqlite:///{new.path}")
    if "://" in where:  # PostgreSQL names types in its own way
        assert {name: [column[0] for column in table[0]] for name, table in shape_of(raw).items()} == {
            name: [column[0] for column in table[0]] for name, table in shape_of(fresh).items()
        }
    else:
        assert shape_of(raw) == shape_of(fresh)
    study.keep_latency("{}", "sim:toy.toml")
    ClusterStore(study).keep(StoredClusterRun("f" * 64, "small", "ours", "steady", 3, "{}"))
    assert ClusterStore(study).find(["f" * 64]) == {"f" * 64: "{}"}
    begun = JobStore(study).begin(JobTerms("weekly", (8,), 8, 0.5), "gpu", lambda _: SimpleNamespace(batch_size=8, why=""))
    assert "weekly" in JobStore(study).names()
    begun.abandon()
    held = len(ServingStore(study).points())
    ServingStore(study).begin([], source="a server").finish()
    assert held == (version >= 7) and study.latency() == "{}" and study.read("w").captured_on is None


def lay_beside(path):
    return {each.name for each in path.parent.iterdir()} - {path.name}


def dump(path):
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_a_copy_lies_beside_and_replaces_no_file(path, capsys):
    put(5, str(path))
    path.chmod(0o640)
    as_it_was = dump(path)
    theirs = path.with_name(f"study.db.before-v{SCHEMA_VERSION}")
    theirs.write_text("somebody's")
    open_study(path).workloads()
    copy = path.with_name(f"study.db.before-v{SCHEMA_VERSION}.2")
    assert theirs.read_text() == "somebody's" and dump(copy) == as_it_was and copy.stat().st_mode & 0o777 == 0o640
    assert capsys.readouterr().err == f"wastenot: {path}: migrated to schema {SCHEMA_VERSION}; the original is in {copy}\n"
    path.write_bytes(copy.read_bytes())  # taken back, and migrated again: the same copy will do
    open_study(path).workloads()
    assert lay_beside(path) == {theirs.name, copy.name} and str(copy) in capsys.readouterr().err


def in_child(work, errors="/dev/null"):
    """Run something in a process of its own; returns its process id."""
    process = os.fork()
    if process:
        return process
    with suppress(BaseException):
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        work()
        os._exit(0)
    os._exit(1)


def code_of(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def migrating_until(where, step):
    """Migrates, and is killed before its ``step``-th statement that changes something, commit or step of the copy."""

    def work():
        steps = 0

        def reach(*event):
            nonlocal steps
            if len(event) > 2 and event[2].startswith(("PRAGMA", "SELECT")):  # statements that change nothing
                return
            steps += 1
            if steps == step:
                os.kill(os.getpid(), signal.SIGKILL)

        def reaching(function):
            def call(*arguments, **named):
                reach()
                found = function(*arguments, **named)
                reach()
                return found

            return call

        for happening in ("before_cursor_execute", "commit"):
            event.listen(Engine, happening, reach)
        sqlite_copy.filecmp.cmp = reaching(filecmp.cmp)
        sqlite_copy.os.link = reaching(os.link)
        open_study(where).workloads()

    return work


@pytest.mark.slow  # a process for each statement of a migration
def test_killed_at_any_moment_a_study_is_old_or_migrated_and_whole(where, raw, tmp_path):
    put(7, where)
    whole, step, outcomes = rows_of(raw), 0, set()
    sweep = export_of(where, tmp_path) if "://" not in where else None
    raw.dispose()
    while True:
        step += 1
        code = code_of(in_child(migrating_until(where, step)))
        found = rows_of(raw)
        outcomes.add("wastenot_cluster_runs" in found)
        if "wastenot_cluster_runs" not in found:
            assert found == whole
        raw.dispose()
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert outcomes == {False, True} and step > 8
    if sweep is not None:
        assert export_of(where, tmp_path) == sweep
        assert lay_beside(Path(where)) == {
            f"study.db.before-v{SCHEMA_VERSION}",
            "export.csv",
            "other.db",
            f"other.db.before-v{SCHEMA_VERSION}",
        }
        assert rows_of(create_engine(f"sqlite:///{where}.before-v{SCHEMA_VERSION}")) == whole
    assert open_study(where).summary().schema_version == SCHEMA_VERSION


def export_of(where, folder):
    other = folder / "other.db"
    other.write_bytes(Path(where).read_bytes())
    export_sweep(other, folder / "export.csv", "gpt3-xl")
    return (folder / "export.csv").read_bytes()


def test_of_many_that_open_it_at_once_one_migrates_and_all_read(where, tmp_path):
    put(4, where)
    ready, go = os.pipe()

    def work():
        os.read(ready, 1)
        assert len(open_study(where, busy_timeout_s=30).read("gpt3-xl")) == 32

    children = [in_child(work, str(tmp_path / "errors")) for _ in range(6)]
    os.write(go, b"x" * 6)
    assert [code_of(child) for child in children] == [0] * 6
    assert (tmp_path / "errors").read_text().count("migrated to schema") == 1
    if "://" not in where:
        assert lay_beside(Path(where)) == {f"study.db.before-v{SCHEMA_VERSION}", "errors"}


def test_a_study_that_may_only_be_read_is_read_and_left(path, capsys):
    put(3, str(path))
    before = path.read_bytes()
    study = open_study(f"sqlite:///file:{path}?mode=ro&uri=true", create=True)
    export_sweep(study, path.parent / "export.csv", "gpt3-xl")
    assert (path.parent / "export.csv").read_bytes() == (VERSIONS / "v3-gpt3-xl.csv").read_bytes()
    assert len(study.summary().workloads) == 3
    with pytest.raises(StudyError, match="it is read-only; copy it to a place"):
        study.add(small_sweep(device="unknown"), source="x")
    assert path.read_bytes() == before and lay_beside(path) == {"export.csv"} and capsys.readouterr().err == ""


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_on_a_full_or_read_only_disk_a_study_is_read_and_left(small_disk):
    path = small_disk / "study.db"
    put(5, str(path))
    before = path.read_bytes()
    # Room for nothing, for a part of the copy, and for the copy but not for all that is then written.
    for room in (0, 64, 184):
        filler = small_disk / "filler"
        filler.write_bytes(b"\0" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize - room * 1024))
        assert len(open_study(path).read("gpt3-xl")) == 32
        with pytest.raises(StudyError, match=f"cannot be migrated to schema {SCHEMA_VERSION}: the disk"):
            open_study(path).add(small_sweep(device="unknown"), source="x")
        assert path.read_bytes() == before and lay_beside(path) == {"filler"}
        filler.unlink()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert len(open_study(path).read("gpt3-xl")) == 32
    with pytest.raises(StudyError, match=f"cannot be migrated to schema {SCHEMA_VERSION}: "):
        open_study(path).add(small_sweep(device="unknown"), source="x")
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert path.read_bytes() == before
    assert open_study(path).summary().schema_version == SCHEMA_VERSION


@pytest.mark.parametrize("what", ["a sweep", "a job"])
def test_while_an_earlier_version_measures_into_it_a_study_is_left(where, raw, what):
    put(7, where)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    now = "CURRENT_TIMESTAMP" if "://" in where else "strftime('%Y-%m-%dT%H:%M:%S+00:00')"
    who = {"process": other.pid, "process_started": lease.start_of(other.pid), "process_space": lease.process_space()}
    mine = ", ".join(f"{name} = :{name}" for name in who)
    with raw.begin() as connection:
        if what == "a job":
            connection.execute(
                text(f"UPDATE wastenot_job_runs SET outcome = 'running', heard_at = CAST({now} AS VARCHAR), {mine}"), who
            )
        else:
            insertion = (
                'INSERT INTO wastenot_leases (workload_id, token, host, "user", process, process_started, process_space, '
                "what, started_at, heard_at) SELECT min(id), 'token', 'here', 'me', :process, :process_started, "
                f":process_space, 'a sweep', CAST({now} AS VARCHAR), CAST({now} AS VARCHAR) FROM wastenot_workloads"
            )
            connection.execute(text(insertion), who)
    before, study = rows_of(raw), open_study(where)
    in_use = (
        f"cannot be migrated to schema {SCHEMA_VERSION}: process {other.pid} on .* still measures into it with that "
        "version; wait for it"
    )
    with pytest.raises(StudyError, match=in_use):
        study.add(small_sweep(device="unknown"), source="x")
    if "://" in where:
        with pytest.raises(StudyError, match=in_use):
            study.read("gpt3-xl")
    else:
        assert len(study.read("gpt3-xl")) == 32 and not lay_beside(Path(where))
    assert rows_of(raw) == before
    other.communicate()
    assert len(study.read("gpt3-xl")) == 32 and "wastenot_cluster_runs" in rows_of(raw)


def test_alembic_is_imported_by_migrations_alone(path):
    asked = "import sys; from wastenot.study.store import open_study; open_study(sys.argv[1]).summary()"
    asked += "; print('alembic' in sys.modules)"
    put(8, str(path))
    open_study(path).summary()  # migrates it
    assert "alembic" in sys.modules
    done = subprocess.run([sys.executable, "-c", asked, path], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_a_study_that_another_program_holds_waits_and_is_left(path):
    put(5, str(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        study = open_study(path, busy_timeout_s=0.1)
        assert len(study.read("gpt3-xl")) == 32  # of a copy that is gone afterwards
        with pytest.raises(StudyError, match=databases.LOCKED):
            study.add(small_sweep(device="unknown"), source="x")
        other.execute("ROLLBACK")
    assert not lay_beside(path) and study.summary().schema_version == SCHEMA_VERSION
