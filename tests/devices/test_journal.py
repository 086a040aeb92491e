"""The journal of changed clocks: one lease a GPU, known to be stale when its owner is dead."""

import json
import os
import subprocess
import sys

import pytest

from wastenot.devices.nvidia import journal
from wastenot.devices.nvidia.journal import Restore
from wastenot.errors import DeviceError

UUID = "GPU-12345678-aaaa"
BEGIN = "import sys; from wastenot.devices.nvidia.journal import *; begin(sys.argv[1], Restore((345.0, 1980.0)))"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def left_by_a_dead_process():
    subprocess.run([sys.executable, "-c", BEGIN, UUID], check=True, env=os.environ)
    (found,) = journal.journals()
    return found


def test_it_comes_back_as_it_was_written(folder):
    path = journal.begin(UUID, Restore((345.0, 1500.0), None, 650.0))
    (found,) = journal.journals()
    assert found.path == path and found.uuid == UUID and found.owner == os.getpid() and found.owner_alive
    assert found.restore == Restore((345.0, 1500.0), None, 650.0)
    assert journal.stale() == ()
    journal.end(path)
    assert journal.journals() == () and list(folder.iterdir()) == []


def test_a_second_lease_is_refused_and_says_whose_the_first_is():
    journal.begin(UUID, Restore())
    with pytest.raises(DeviceError, match=f"process {os.getpid()}"):
        journal.begin(UUID, Restore())
    journal.begin("GPU-another", Restore())


def test_a_journal_whose_owner_is_dead_is_stale_and_claimed_once():
    found = left_by_a_dead_process()
    assert not found.owner_alive and journal.stale() == (found,)
    claimed = journal.claim(found)
    assert claimed is not None and journal.claim(found) is None
    # While the claimer lives nobody else takes it; were it to die, the journal would still be there.
    (seen,) = journal.journals()
    assert seen.owner == os.getpid() and seen.owner_alive and seen.restore == found.restore
    journal.end(claimed)
    assert journal.journals() == ()


def test_a_claimer_that_dies_leaves_it_stale():
    found = left_by_a_dead_process()
    claim = "from wastenot.devices.nvidia import journal; journal.claim(journal.stale()[0])"
    subprocess.run([sys.executable, "-c", claim], check=True, env=os.environ)
    (seen,) = journal.stale()
    assert seen.uuid == found.uuid and ".claimed-" in seen.path.name
    assert journal.claim(seen) is not None


def test_a_process_number_used_again_is_not_the_owner():
    path = journal.begin(UUID, Restore())
    path.write_text(json.dumps(json.loads(path.read_text()) | {"started": "1"}))
    assert not journal.journals()[0].owner_alive


def test_another_boot_is_another_owner():
    path = journal.begin(UUID, Restore())
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot": "before"}))
    assert not journal.journals()[0].owner_alive


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"uuid": 3}', "\x00"])
def test_a_broken_journal_is_named_with_a_way_out(folder, text):
    folder.mkdir()
    (folder / f"{UUID}.json").write_text(text)
    with pytest.raises(DeviceError, match="nvidia-smi -rgc"):
        journal.journals()


def test_without_a_place_for_the_journal_nothing_may_be_changed(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "file"))
    with pytest.raises(DeviceError, match="clocks are not changed without it"):
        journal.begin(UUID, Restore())
