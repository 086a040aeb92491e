"""The journal of changed clocks: one lease a GPU, known to be stale when its owner is dead."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

from testbed import made_up_gpus
from wastenot.core.errors import DeviceError
from wastenot.core.processes import boot_id, start_of
from wastenot.devices.common import journal
from wastenot.devices.common.journal import Restore
from wastenot.devices.common.recovery import possible

UUID = "GPU-12345678-aaaa"
BEGIN = "import sys; from wastenot.devices.common.journal import *; begin(sys.argv[1], Restore((345.0, 1980.0)))"


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
    assert journal.journals() == () and [file.suffix for file in folder.iterdir()] == [".lock"]
    journal.begin(UUID, Restore())  # which nobody has any more


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
    assert seen.owner_alive and seen.restore == found.restore == claimed.restore
    journal.end(claimed.path)
    assert journal.journals() == ()


def test_a_claimer_that_dies_leaves_it_stale():
    found = left_by_a_dead_process()
    claim = "from wastenot.devices.common import journal; journal.claim(journal.stale()[0])"
    subprocess.run([sys.executable, "-c", claim], check=True, env=os.environ)
    (seen,) = journal.stale()
    assert seen.uuid == found.uuid
    assert journal.claim(seen) is not None


EARLIER = {
    "schema": "wastenot.clocks/1",
    "uuid": UUID,
    "restore": {"core_mhz": [345.0, 1500.0], "memory_mhz": None, "power_limit_w": 650.0},
}


def left_by_an_earlier_version(folder, name=f"{UUID}.json", **fields):
    me = {"process": os.getpid(), "started": start_of(os.getpid()), "boot": boot_id()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(EARLIER | me | fields))


def test_a_journal_of_an_earlier_version_goes_by_its_process(folder):
    left_by_an_earlier_version(folder)
    assert journal.journals()[0].owner_alive and journal.stale() == ()
    with pytest.raises(DeviceError, match=f"process {os.getpid()} .* controls"):
        journal.begin(UUID, Restore())


@pytest.mark.parametrize("fields", [{"started": "1"}, {"boot": "before"}, {"process": 2**22 + 1}])
def test_a_process_number_used_again_or_of_another_boot_is_not_the_owner(folder, fields):
    left_by_an_earlier_version(folder, **fields)
    (found,) = journal.stale()
    assert not found.owner_alive and found.restore == Restore((345.0, 1500.0), None, 650.0)
    with pytest.raises(DeviceError, match="run wastenot device reset"):
        journal.begin(UUID, Restore())
    claimed = journal.claim(found)
    journal.end(claimed.path)
    journal.begin(UUID, Restore())


def test_what_an_earlier_version_was_restoring_is_found(folder):
    left_by_an_earlier_version(folder, name=f"{UUID}.json.claimed-{2**22 + 1}-77")
    (found,) = journal.stale()
    assert journal.claim(found).uuid == UUID


def test_root_writes_where_all_see_and_still_finds_what_it_once_wrote_at_home(monkeypatch, tmp_path):
    monkeypatch.delenv("WASTENOT_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(journal, "MACHINE", tmp_path / "run")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    left_by_an_earlier_version(tmp_path / "home" / "wastenot", started="1")
    path = journal.begin("GPU-another", Restore())
    assert path.parent == tmp_path / "run" and path.stat().st_mode & 0o777 == 0o644
    assert {found.uuid for found in journal.journals()} == {UUID, "GPU-another"}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert journal.state_folder() == tmp_path / "home" / "wastenot"
    assert len(journal.journals()) == 2 and journal.stale() == ()  # another's files


def test_nobody_else_can_lock_a_lease(folder):
    journal.begin(UUID, Restore())
    (lock,) = folder.glob(".*.lock")
    assert lock.stat().st_mode & 0o777 == 0o600


HOLD = """
import os, signal, sys
from wastenot.devices.common.journal import *
begin(sys.argv[1], Restore())
if sys.argv[2] == "fork" and os.fork() == 0:
    print("ready", os.getpid(), flush=True)
    signal.pause()
elif sys.argv[2] == "exec":
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[3]])
elif sys.argv[2] == "alone":
    print("ready", os.getpid(), flush=True)
signal.pause()
"""
THEN = "import os, signal; print('ready', os.getpid(), flush=True); signal.pause()"


@contextmanager
def holder(how, *before):
    """A process that has begun a journal, and whatever it has started, until the context is left."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", HOLD, UUID, how, THEN], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        said = process.stdout.readline().split()
        try:
            yield process, int(said[1])
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_worker_that_outlives_its_parent_does_not_keep_the_lease():
    with holder("fork") as (process, worker):
        assert journal.journals()[0].owner_alive
        process.kill()
        process.wait()
        os.kill(worker, 0)  # it lives
        (found,) = journal.stale()
        assert journal.claim(found) is not None


def test_a_process_that_becomes_another_program_has_given_up_the_lease():
    with holder("exec") as (process, same):
        assert same == process.pid and len(journal.stale()) == 1


def test_a_process_of_another_container_is_known_to_live_and_to_be_dead():
    if subprocess.run(["unshare", "--pid", "--fork", "true"], check=False, capture_output=True).returncode:
        pytest.skip("another PID namespace takes root: mount namespaces are not allowed here")
    with holder("alone", "unshare", "--pid", "--fork", "--kill-child") as (process, inside):
        (found,) = journal.journals()
        assert found.owner == inside < process.pid and found.owner_alive and journal.stale() == ()
        with pytest.raises(DeviceError, match=f"process {inside} in another container .* controls"):
            journal.begin(UUID, Restore())
        process.kill()
        process.wait()
        deadline = time.monotonic() + 60.0
        while journal.journals()[0].owner_alive and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(journal.stale()) == 1


def test_seen_from_another_container_too():
    journal.begin(UUID, Restore())
    look = "from wastenot.devices.common import journal; print(journal.journals()[0].owner_alive, len(journal.stale()))"
    command = [sys.executable, "-c", look]
    if not subprocess.run(["unshare", "--pid", "--fork", "true"], check=False, capture_output=True).returncode:
        command = ["unshare", "--pid", "--fork", *command]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "True 0\n"


def test_looking_does_not_give_up_a_lease():
    path = journal.begin(UUID, Restore())
    for _ in range(3):
        assert journal.journals()[0].owner_alive
    look = "from wastenot.devices.common import journal; print(len(journal.stale()))"
    assert subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout == "0\n"
    journal.end(path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"uuid": 3}', "\x00"])
def test_a_broken_journal_is_named_and_restores_the_defaults_of_its_gpu(folder, text):
    folder.mkdir()
    path = folder / f"{UUID}.json"
    path.write_text(text)
    (found,) = journal.journals()
    assert found.uuid == UUID and found.restore == Restore() and found.restorable and str(path) in found.unreadable
    with pytest.raises(DeviceError, match="run wastenot device reset"):
        journal.begin(UUID, Restore())
    journal.begin("GPU-another", Restore())


def test_without_a_place_for_the_journal_nothing_may_be_changed(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "file"))
    with pytest.raises(DeviceError, match="clocks are not changed without it"):
        journal.begin(UUID, Restore())


# ---- what others have written ----------------------------------------------------------------------------------


def test_a_link_at_the_name_of_a_new_file_overwrites_nothing(folder, tmp_path):
    folder.mkdir()
    victim = tmp_path / "shadow"
    victim.write_text("root:x")
    (folder / f".{UUID}.json.new").symlink_to(victim)
    (folder / f"{UUID}.json").symlink_to(victim)
    with suppress(DeviceError):
        journal.begin(UUID, Restore())
    assert victim.read_text() == "root:x" and not victim.stat().st_mode & 0o002


def test_a_folder_is_the_owners_alone(folder):
    journal.begin(UUID, Restore())
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("where", ["file", "folder"])
@pytest.mark.parametrize("how", ["another's", "writable by all", "writable by the group"])
def test_what_others_can_have_written_is_no_journal(folder, where, how):
    left = left_by_a_dead_process()
    path = left.path if where == "file" else folder
    if how == "another's" and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    if how == "another's":
        os.chown(path, 1000, -1)
    else:
        path.chmod(path.stat().st_mode | (0o002 if how == "writable by all" else 0o020))
    assert journal.journals() == () and journal.claim(left) is None


def test_nothing_is_changed_where_others_could_write_the_journal(folder):
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(DeviceError, match=r"users other than its owner can write to .*not changed without it"):
        journal.begin(UUID, Restore())


@pytest.mark.parametrize(
    ("named", "restored"),
    [
        (Restore((300.0, 900.0), (2000.0, 2000.0), 200.0), Restore((300.0, 900.0), (2000.0, 2000.0), 200.0)),
        (Restore((0.0, 900.0)), Restore((0.0, 900.0))),
        (Restore((901.0, 902.0), (1.0, 2.0), 99.0), Restore()),
        (Restore((0.0, float("inf")), (float("nan"), 2000.0), 301.0), Restore()),
        (Restore(power_limit_w=float("nan")), Restore()),
    ],
)
def test_only_what_a_gpu_can_have_had_is_restored(named, restored):
    setter = SimpleNamespace(supported_clocks=lambda: made_up_gpus.CLOCKS, power_limit_range_w=lambda: (100.0, 300.0))
    assert possible(setter, named) == restored
    setter.power_limit_range_w = lambda: None
    assert possible(setter, named).power_limit_w is None


def test_what_a_process_left_that_was_killed_while_it_wrote_ends_with_the_journal(folder):
    path = journal.begin(UUID, Restore((345.0, 1980.0)))
    (folder / f".{path.name}.new").write_text("{half")
    journal.end(path)
    assert not [each.name for each in folder.iterdir() if ".json" in each.name]
