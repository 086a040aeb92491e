"""NVIDIA's workload power profiles: requested and enforced are told apart, journaled exactly and undone exactly."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.stand_in.fixtures import start_stand_in
from testbed.stand_in.profiles import NUMBERS, SET, SET_AND_OVERWRITE
from wastenot.core.errors import ClocksRefusedError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.common import journal, recovery
from wastenot.devices.common.gpu_driver import DriverError, Profiles, setter_of
from wastenot.devices.open import open_gpu

MAX_Q, TRAINING = NUMBERS["max-q"], NUMBERS["llm-training"]


@pytest.fixture(scope="module")
def server():
    with start_stand_in("b200", gpus=2) as stand_in:
        yield stand_in


@pytest.fixture
def stand_in(server, monkeypatch, tmp_path):
    server.control.reset()
    server.use(monkeypatch)
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "state"))
    return server


@pytest.fixture
def clocks(stand_in):
    with_profiles = open_gpu("nvidia:0", allow_clock_control=True).clocks
    yield with_profiles
    stand_in.control.clear_faults()
    with_profiles.release()


def setter(stand_in, index=0):
    return setter_of(stand_in.control.state(index).uuid)


def test_what_is_available_requested_and_enforced_is_told_apart(stand_in):
    card = setter(stand_in)
    assert card.profiles() == Profiles(("max-q", "llm-inference", "llm-training"), (), ())
    card.request_profiles(["max-q", "llm-training"])
    assert card.profiles().requested == ("max-q", "llm-training")
    assert card.profiles().enforced == ("max-q",)  # they conflict
    card.request_profiles([])
    assert card.profiles().requested == card.profiles().enforced == ()


def test_a_card_without_profiles_says_so_once(monkeypatch, tmp_path):
    with start_stand_in("h200") as without:
        without.use(monkeypatch)
        monkeypatch.setenv("WASTENOT_STATE", str(tmp_path))
        assert setter(without).profiles() is None
        clocks = open_gpu("nvidia:0", allow_clock_control=True).clocks
        assert clocks.profiles() == ()
        with pytest.raises(ClocksRefusedError, match="no workload power profile 'max-q'; none may be set here"):
            clocks.request(Setting(profile="max-q"))
        clocks.request(Setting(core_mhz=1410.0))  # and everything else as ever
        clocks.release()
        assert without.control.state().untouched


@pytest.mark.parametrize("found", [frozenset(), frozenset({TRAINING}), frozenset({MAX_Q, TRAINING})])
def test_what_an_administrator_requested_is_restored_exactly(stand_in, clocks, found):
    card = setter(stand_in)
    card.request_profiles([name for name, number in NUMBERS.items() if number in found])
    clocks.request(Setting(1410.0, profile="llm-inference"))
    state = stand_in.control.state()
    assert state.profiles == {NUMBERS["llm-inference"]} and state.requested.profile == "llm-inference"
    (left,) = journal.journals()
    assert left.changed == {"profile", "core"}
    assert set(left.restore.profiles) == {name for name, number in NUMBERS.items() if number in found}
    clocks.request(Setting(1410.0))  # its own part of the setting is auto again: as it was found
    assert stand_in.control.state().profiles == found
    clocks.request(Setting(profile="max-q"))
    clocks.request(AUTO)
    assert stand_in.control.state().profiles == found and journal.journals() == ()


def test_other_requests_are_overwritten_so_that_the_profile_measured_is_the_one_asked_for(stand_in, clocks):
    setter(stand_in).request_profiles(["max-q"])  # has priority over the other
    clocks.request(Setting(profile="llm-training"))
    operations = [call.arguments[0] for call in stand_in.control.state().setters]
    assert operations == [SET_AND_OVERWRITE, SET_AND_OVERWRITE] and SET not in operations
    assert stand_in.control.state().requested.profile == "llm-training"


def test_a_profile_that_is_requested_and_not_enforced_is_refused_and_undone(stand_in, clocks):
    stand_in.control.enforce_instead(MAX_Q)
    with pytest.raises(ClocksRefusedError, match="llm-training was requested, and the GPU enforces max-q"):
        clocks.request(Setting(profile="llm-training"))
    assert not stand_in.control.state().profiles and journal.journals() == ()


def test_profiles_that_there_are_not_are_answered_with_those_there_are(clocks):
    with pytest.raises(ClocksRefusedError, match="'max-p'; it has max-q, llm-inference, llm-training"):
        clocks.request(Setting(profile="max-p"))


def test_without_the_permission_nothing_is_changed(stand_in, clocks):
    stand_in.control.fault("nvmlDeviceWorkloadPowerProfileUpdate*", "NO_PERMISSION")
    with pytest.raises(ClocksRefusedError, match=r"profile: .*no permission"):
        clocks.request(Setting(profile="max-q"))
    assert stand_in.control.state().untouched and journal.journals() == ()


def test_a_driver_too_old_to_change_profiles_is_told(stand_in, clocks):
    stand_in.control.fault("nvmlDeviceWorkloadPowerProfileUpdate*", "FUNCTION_NOT_FOUND")
    with pytest.raises(ClocksRefusedError, match="this driver does not provide it"):
        clocks.request(Setting(profile="max-q"))


def test_an_undo_that_fails_is_tried_again(stand_in, clocks):
    clocks.request(Setting(profile="max-q"))
    stand_in.control.fault("nvmlDeviceWorkloadPowerProfileUpdate*", "UNKNOWN", times=1)
    with pytest.raises(DriverError):
        clocks.release()
    assert stand_in.control.state().profiles == {MAX_Q} and len(journal.journals()) == 1
    clocks.release()
    assert stand_in.control.state().untouched and journal.journals() == ()


def test_a_change_that_took_effect_although_the_driver_said_it_failed_is_undone(stand_in, clocks):
    stand_in.control.fault("nvmlDeviceWorkloadPowerProfileUpdate*", "UNKNOWN", times=1, takes_effect=True)
    with pytest.raises(DriverError):
        clocks.request(Setting(profile="max-q"))
    assert stand_in.control.state().untouched


def test_a_setting_that_is_claimed_leaves_the_profile_as_it_was_found(stand_in, clocks):
    """Unlike locked clocks, which cannot be read, so that the driver's own choice is set for what is measured at auto."""
    setter(stand_in).request_profiles(["llm-training"])
    with clocks.claimed():
        clocks.request(AUTO)
        assert stand_in.control.state().profiles == {TRAINING}
        clocks.request(Setting(profile="max-q"))
        clocks.request(AUTO)
        assert stand_in.control.state().profiles == {TRAINING}


def test_a_dead_process_leaves_a_journal_by_which_the_next_command_restores_exactly(stand_in, tmp_path):
    setter(stand_in).request_profiles(["llm-training"])
    program = (
        "import os; from wastenot.core.setting import Setting; from wastenot.devices.open import open_gpu\n"
        "open_gpu('nvidia:0', allow_clock_control=True).clocks.request(Setting(profile='max-q')); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program], env=stand_in.environment(), check=False, timeout=120)
    assert stand_in.control.state().profiles == {MAX_Q}
    (left,) = journal.journals()
    assert left.restorable and left.restore.profiles == ("llm-training",)
    assert recovery.put_right() == 1
    assert stand_in.control.state().profiles == {TRAINING}


def _edit(path, **restore):
    document = json.loads(Path(path).read_text())
    document["restore"] |= restore
    Path(path).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("written", "found", "left"),
    [
        (["max-q", "no-such"], {TRAINING}, {MAX_Q}),  # what the card has not was never found there
        (None, {TRAINING}, {TRAINING}),  # by a version that knew no profiles, and changed none
        ([], {TRAINING}, set()),
    ],
)
def test_a_journal_restores_what_the_card_can_have_had(stand_in, written, found, left):
    uuid = stand_in.control.state().uuid
    path = journal.begin(uuid, journal.Restore(power_limit_w=1000.0, profiles=()))
    _edit(path, profiles=written)
    setter(stand_in).request_profiles([name for name, number in NUMBERS.items() if number in found])
    journal.disclaim(path)  # as if its owner had died
    assert recovery.put_right() == 1
    assert stand_in.control.state().profiles == left


def test_what_a_journal_that_cannot_be_read_may_have_changed_is_cleared(stand_in):
    path = journal.begin(stand_in.control.state().uuid, journal.Restore())
    setter(stand_in).request_profiles(["max-q"])
    Path(path).write_text("{")
    journal.disclaim(path)
    assert recovery.put_right() == 1
    assert not stand_in.control.state().profiles
