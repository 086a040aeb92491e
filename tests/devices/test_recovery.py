"""Recovery: GPU by GPU, whatever a journal holds and whichever GPU fails."""

import json

import pytest

from testbed.stand_in.controlled import locks
from wastenot.core.processes import boot_id
from wastenot.devices.clockd import main
from wastenot.devices.clockd.main import main as wastenotd
from wastenot.devices.common import journal
from wastenot.devices.common.recovery import recover
from wastenot.devices.nvidia.nvml import Nvml

ANOTHER_BOOT = "2593f150-aea7-4b16-964f-4c9e6ab70580"
CLEAN, CHANGED = (None, None, 700.0), ((345, 1200), (2201, 2201), 400.0)


@pytest.fixture
def left(stand_in, tmp_path):
    """Writes the journal of a GPU that a dead process left changed; the file."""
    nvml = Nvml(allow_changes=True)
    (tmp_path / "state").mkdir()

    def leave(index, text=None, **fields):
        handle, uuid = nvml.call("nvmlDeviceGetHandleByIndex", index), stand_in.control.state(index).uuid
        nvml.call("nvmlDeviceSetGpuLockedClocks", handle, 345, 1200)
        nvml.call("nvmlDeviceSetMemoryLockedClocks", handle, 2201, 2201)
        nvml.call("nvmlDeviceSetPowerManagementLimit", handle, 400_000)
        found = {
            "schema": journal.SCHEMA, "uuid": uuid, "process": 2**22 + 1, "user": 0, "started": "1", "boot": boot_id(),
            "space": journal.process_space(), "restore": {"core_mhz": None, "memory_mhz": None, "power_limit_w": 700.0},
        }  # fmt: skip
        path = tmp_path / "state" / f"{uuid}.json"
        path.write_text(json.dumps(found | fields) if text is None else text)
        return path

    return leave


BROKEN = {
    "empty": {"text": ""}, "zeros": {"text": "\0" * 300}, "no object": {"text": "[]"}, "no fields": {"text": "{}"},
    "deep": {"text": "[" * 60_000}, "too long": {"text": " " * 100_000}, "cut off": {"text": '{"schema": "wastenot.clo'},
    "endless": {"process": 1e999}, "no client": {"client": 5}, "a client that is none": {"client": {"process": "x"}},
    "no lock": {"restore": {"core_mhz": [], "memory_mhz": None, "power_limit_w": None}}, "changed": {"changed": 7},
    "another GPU": {"uuid": "GPU-another"}, "huge": {"client": {"process": 10**400, "user": 1e999}},
}  # fmt: skip


@pytest.mark.parametrize("how", BROKEN)
def test_what_cannot_be_understood_resets_its_gpu_and_keeps_no_other_changed(stand_in, left, how):
    broken, _ = left(0, **BROKEN[how]), left(1)
    done = recover()
    assert done.failed == {} and len(done.restored) == 2
    assert locks(stand_in, 0) == locks(stand_in, 1) == CLEAN and journal.journals() == ()
    assert broken.with_suffix(".unreadable").exists() and not broken.exists()


def test_a_huge_user_is_only_a_name(left):
    left(0, client={"process": 4711, "user": 10**30})
    (found,) = journal.journals()
    assert "4711" in str(found.holder) and len(recover().restored) == 1


def test_a_lost_gpu_keeps_no_other_changed(stand_in, left):
    lost, _ = left(0), left(1)
    stand_in.control.gpu_lost(0)
    done = recover()
    assert len(done.restored) == 1 and [*done.failed] == [lost.stem] and "is lost" in str(done.failed[lost.stem])
    assert locks(stand_in, 1) == CLEAN and lost.exists()
    stand_in.control.clear_faults()
    assert len(recover().restored) == 1 and locks(stand_in, 0) == CLEAN


@pytest.mark.parametrize("found_w", [700.0, 99.0, None])
def test_a_power_limit_that_was_changed_is_reset_where_it_cannot_be_what_was_found(stand_in, left, found_w):
    restore = {"core_mhz": None, "memory_mhz": None, "power_limit_w": found_w}
    if found_w == 700.0:
        stand_in.control.fault("nvmlDeviceGetPowerManagementLimitConstraints", "NOT_SUPPORTED")
    path = left(0, changed=["power"], restore=restore)
    done = recover()
    assert done.failed == {} and locks(stand_in, 0) == CLEAN and not path.exists()


def test_a_power_limit_that_was_changed_is_not_called_restored_where_it_was_not(stand_in, left):
    path = left(0, changed=["power"])
    for what in ("LimitConstraints", "DefaultLimit"):
        stand_in.control.fault(f"nvmlDeviceGetPowerManagement{what}", "NOT_SUPPORTED")
    done = recover()
    assert done.restored == () and "power limit" in str(done.failed[path.stem]) and path.exists()
    assert locks(stand_in, 0) == (None, None, 400.0)
    stand_in.control.clear_faults()
    assert len(recover().restored) == 1 and locks(stand_in, 0) == CLEAN


def test_what_was_set_before_the_machine_was_started_again_sets_nothing(stand_in, left):
    path = left(0, boot=ANOTHER_BOOT)  # what is locked now, an administrator has locked since
    assert len(recover().restored) == 1
    assert locks(stand_in, 0) == CHANGED and not path.exists()


@pytest.mark.parametrize("how", ["endless", "no client", "no lock", "changed", "another GPU"])
def test_a_journal_of_another_boot_sets_nothing_even_where_it_cannot_be_understood(stand_in, left, how):
    path = left(0, boot=ANOTHER_BOOT, **BROKEN[how])
    assert len(recover().restored) == 1 and locks(stand_in, 0) == CHANGED
    assert path.with_suffix(".unreadable").exists() and not path.exists()


@pytest.mark.parametrize("boot", ["", None, 5])
def test_a_journal_that_names_no_boot_may_be_of_this_one(stand_in, left, boot):
    left(0, boot=boot)
    assert len(recover().restored) == 1 and locks(stand_in, 0) == CLEAN


def test_where_the_system_names_no_boot_a_journal_may_be_of_this_one(stand_in, left, monkeypatch):
    left(0, boot=ANOTHER_BOOT)
    monkeypatch.setattr(journal, "boot_id", lambda: "")
    assert len(recover().restored) == 1 and locks(stand_in, 0) == CLEAN


def test_a_gpu_that_is_gone_keeps_no_journal_of_another_boot(stand_in, left):
    path = left(0, boot=ANOTHER_BOOT)
    stand_in.control.gpu_lost(0)
    assert recover().failed == {} and not path.exists()


def test_the_log_does_not_call_restored_what_another_boot_has_changed(left, capsys):
    left(0, boot=ANOTHER_BOOT)
    assert wastenotd(["--recover"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("forgotten gpu=") and "started again" in said and "restored" not in said


def test_a_folder_that_cannot_be_listed_is_a_failure_and_no_exception(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "file"))
    done = recover()
    assert done.restored == () and "journals of changed clocks cannot be read" in str(done.failed[""])


def test_wastenotd_recovers_without_a_policy(stand_in, left, tmp_path, capsys):
    left(0), left(1, text="?")
    policy = tmp_path / "none.toml"
    assert wastenotd(["--policy", str(policy), "--recover"]) == 0
    assert locks(stand_in, 0) == locks(stand_in, 1) == CLEAN
    assert capsys.readouterr().err.count("restored gpu=") == 2
    lost = left(0)
    stand_in.control.gpu_lost(0)
    assert wastenotd(["--policy", str(policy), "--recover"]) == 1
    assert f"cannot restore gpu={lost.stem}" in capsys.readouterr().err.replace('"', "")


@pytest.mark.parametrize("what", ["a journal", "rules"])
def test_what_an_earlier_version_left_elsewhere_is_told_and_not_trusted(stand_in, left, monkeypatch, tmp_path, capsys, what):
    earlier = tmp_path / "earlier"
    monkeypatch.setattr(main, "_EARLIER", earlier)
    earlier.mkdir()
    (earlier / "wastenotd.sock").touch()
    assert wastenotd(["--recover"]) == 0 and capsys.readouterr().err == ""
    path = left(0)
    elsewhere = earlier / ("policy.d" if what == "rules" else path.name)
    path.rename(elsewhere)
    assert wastenotd(["--recover"]) == 0 and locks(stand_in, 0) == CHANGED and elsewhere.exists()
    assert f"WASTENOT_STATE={earlier} wastenotd --recover" in capsys.readouterr().err
    monkeypatch.setenv("WASTENOT_STATE", str(earlier))
    assert wastenotd(["--recover"]) == 0 and "WASTENOT_STATE" not in capsys.readouterr().err
    assert locks(stand_in, 0) == (CHANGED if what == "rules" else CLEAN)
