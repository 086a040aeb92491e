"""What can be wrong with the file of a study: each is said in one line, and nothing is made or changed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from testbed import ROOT
from testbed.sweeps import assert_same, large_sweep, small_sweep
from wastenot.core.errors import StudyError
from wastenot.study.store import open_study
from wastenot.workloads.identity import WorkloadKey


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.db"


@pytest.fixture
def filled(path):
    open_study(path, create=True).add(small_sweep(), source="s")
    return path


def refusals(where, *, writing=True):
    """What each verb says about a study."""
    study = open_study(where, create=True, busy_timeout_s=0.1)
    verbs = [study.workloads, study.read, study.summary]
    if writing:
        verbs.append(lambda: study.add(small_sweep(workload="b"), source="x"))
    messages = []
    for verb in verbs:
        with pytest.raises(StudyError) as caught:
            verb()
        assert "\n" not in str(caught.value)
        messages.append(str(caught.value))
    return messages


def test_a_missing_study_is_said_and_not_made(path):
    with pytest.raises(
        StudyError,
        match=r"there is no study here; create one: wastenot kernel sweep .*wastenot study import SWEEP.csv --study ",
    ):
        open_study(path)
    for message in refusals(path, writing=False):
        assert message.startswith(f"{path}: there is no study here; create one")
    with pytest.raises(StudyError, match="there is no study"):
        open_study(f"sqlite:///{path}")
    assert not path.exists()


def test_a_study_that_vanishes_is_not_made_again(filled):
    study = open_study(filled)
    filled.unlink()
    with pytest.raises(StudyError, match="there is no study"):
        study.add(small_sweep(workload="b"), source="x")
    assert not filled.exists()


def test_opening_to_create_makes_nothing_yet(path):
    open_study(path, create=True)
    assert not path.exists()


def test_a_missing_folder_and_a_folder_are_said(tmp_path):
    with pytest.raises(StudyError, match=r"there is no folder .*/none; create it first"):
        open_study(tmp_path / "none" / "s.db", create=True)
    with pytest.raises(StudyError, match="is a folder, not a study"):
        open_study(tmp_path, create=True)
    with pytest.raises(StudyError, match="cannot be made: Not a directory"):
        open_study("/dev/null/s.db", create=True)


def test_what_is_not_sqlite_is_said_and_kept(path):
    path.write_bytes(b"kernel,count\n" * 100)
    assert all("is not a study (not an SQLite file)" in message for message in refusals(path))
    assert path.read_bytes() == b"kernel,count\n" * 100


def test_another_programs_database_is_said_and_kept(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    before = path.read_bytes()
    assert all("is not a study but another program's SQLite file" in message for message in refusals(path))
    assert path.read_bytes() == before


def test_a_corrupt_study_is_said(path):
    open_study(path, create=True).add(large_sweep(20_000), source="s")
    content = bytearray(path.read_bytes())
    for start in range(8192, len(content), 4096):
        content[start : start + 64] = b"\xff" * 64
    path.write_bytes(content)
    assert "is damaged; restore a copy" in refusals(path)[1]
    path.write_bytes(content[:5000])
    assert "is damaged; restore a copy" in refusals(path)[1]


def test_a_read_only_study_can_be_read_and_not_written(filled):
    before = filled.read_bytes()
    study = open_study(f"sqlite:///file:{filled}?mode=ro&uri=true")
    assert_same(study.read(), small_sweep())
    with pytest.raises(StudyError, match="it is read-only; copy it"):
        study.add(small_sweep(workload="b"), source="x")
    assert filled.read_bytes() == before


def test_a_study_that_another_program_writes_is_said(filled):
    other = sqlite3.connect(filled, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert all("another program is writing to it; try again" in message for message in refusals(filled))
    other.execute("ROLLBACK")
    other.close()
    assert_same(open_study(filled).read(), small_sweep())


def test_an_existing_empty_file_stays_when_the_import_fails(path, monkeypatch):
    path.touch()
    monkeypatch.setattr("wastenot.study.store.insert_rows", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        open_study(path, create=True).add(small_sweep(), source="x")
    assert path.read_bytes() == b""


def test_a_file_that_is_replaced_while_one_waits_is_not_written(filled, monkeypatch):
    study = open_study(filled)
    copy = filled.with_name("copy.db")
    copy.write_bytes(filled.read_bytes())
    connect = sqlite3.connect

    def replace_after(*args, **kwargs):
        opened = connect(*args, **kwargs)
        copy.replace(filled)
        return opened

    with monkeypatch.context() as patch:
        patch.setattr("wastenot.study.database.sqlite3.connect", replace_after)
        with pytest.raises(StudyError, match="try again"):
            study.add(small_sweep(workload="b"), source="x")
    assert study.workloads() == (WorkloadKey("w"),)


def test_odd_file_names_are_just_names(tmp_path):
    for name in ("a b.db", "q?mode=ro.db", "50%.db", "h#sh.db", "µ.db"):
        open_study(tmp_path / name, create=True).add(small_sweep(), source="s")
        assert_same(open_study(tmp_path / name).read(), small_sweep())
        assert (tmp_path / name).exists()
    assert len(list(tmp_path.iterdir())) == 5


_IMPORT_UNDER_LIMIT = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from testbed import ROOT
from testbed.sweeps import large_sweep
from wastenot.core.errors import StudyError
from wastenot.study.store import open_study
sweep = large_sweep(100_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
try:
    open_study(sys.argv[2], create=True).add(sweep, source="x")
except StudyError as error:
    print(error)
"""


@pytest.mark.parametrize("exists", [True, False])
def test_a_file_that_may_not_grow_is_said_and_left_as_it_was(request, path, exists):
    if exists:
        request.getfixturevalue("filled")
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_UNDER_LIMIT, str(ROOT), path],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "the disk" in done.stdout
    assert done.stdout.count("\n") == 1
    if exists:
        assert_same(open_study(path).read(), small_sweep())
    else:
        assert list(path.parent.iterdir()) == []


def test_a_full_disk_is_said_and_the_study_is_as_it_was(small_disk):
    with pytest.raises(StudyError, match="the disk is full; make room and try again"):
        open_study(small_disk / "new.db", create=True).add(large_sweep(), source="x")
    assert list(small_disk.iterdir()) == []
    study = open_study(small_disk / "s.db", create=True)
    study.add(small_sweep(), source="s")
    with pytest.raises(StudyError, match="the disk is full"):
        study.add(large_sweep(), source="x")
    assert_same(study.read(), small_sweep())
