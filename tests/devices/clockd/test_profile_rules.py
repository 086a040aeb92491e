"""Workload power profiles through wastenotd: who may request which, and what becomes of them."""

import os

import pytest

from testbed.daemon_in_process import UUIDS, running
from testbed.daemon_process import Daemon
from testbed.read_policies import read_policy
from testbed.stand_in.fixtures import start_stand_in
from testbed.stand_in.profiles import NUMBERS
from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.setting import Setting
from wastenot.devices.clockd.policy import Bounds, Policy, Rule
from wastenot.devices.common.daemon_protocol import SOCKET_VARIABLE
from wastenot.devices.common.journal import journals
from wastenot.devices.open import open_gpu

GPU = UUIDS[0]
MAX_Q, TRAINING = 1, 7


def policy(*profiles):
    return Policy((Rule(frozenset({1000}), frozenset(), None, Bounds(profiles=frozenset(profiles))),), heartbeat_s=10.0)


@pytest.fixture
def client():
    with running(policy("max-q")) as daemon:
        client = daemon.connect()
        assert client.ask("hello")["ok"]["gpus"][GPU]["profiles"] == ["max-q"]
        client.ask("acquire", gpu=GPU)
        yield daemon, client
        assert daemon.mistakes() == []


def test_a_profile_that_the_policy_lists_is_set_recorded_and_undone(client):
    daemon, asking = client
    daemon.nvml.profiles[0] = frozenset({TRAINING})  # by an administrator, before
    asking.ask("release", gpu=GPU)
    asking.ask("acquire", gpu=GPU)
    assert "ok" in asking.ask("set", gpu=GPU, profile="max-q")
    assert daemon.nvml.profiles[0] == {MAX_Q} and daemon.records[-1]["profile"] == "max-q"
    asking.close()
    assert daemon.nvml.profiles[0] == {TRAINING} and daemon.journals() == []


@pytest.mark.parametrize("profile", ["llm-training", "no-such"])
def test_others_are_refused(client, profile):
    daemon, asking = client
    reply = asking.ask("set", gpu=GPU, profile=profile)
    assert reply["error"] == "policy" and "these workload power profiles: max-q" in reply["text"]
    assert not daemon.nvml.changed(0)


@pytest.mark.parametrize("profile", [7, ["max-q"], True, 1.5])
def test_what_is_no_name_is_no_request(client, profile):
    assert client[1].ask("set", gpu=GPU, profile=profile)["error"] == "message"


def test_by_default_no_profile_may_be_set_and_none_is_touched():
    with running(policy()) as daemon:
        daemon.nvml.profiles[0] = frozenset({TRAINING})
        client = daemon.connect()
        client.ask("hello")
        client.ask("acquire", gpu=GPU, claim=True)
        assert client.ask("set", gpu=GPU, profile="max-q")["error"] == "policy"
        daemon.nvml.profiles[0] = frozenset({MAX_Q})  # by an administrator, meanwhile
        assert "ok" in client.ask("set", gpu=GPU, core_mhz=900) and "ok" in client.ask("set", gpu=GPU)
        client.ask("release", gpu=GPU)
        assert daemon.nvml.profiles[0] == {MAX_Q}


def test_a_policy_that_no_longer_lists_a_profile_takes_it_back(client):
    daemon, asking = client
    asking.ask("set", gpu=GPU, core_mhz=900, profile="max-q")
    daemon.take_policy(policy("llm-training"))
    assert daemon.nvml.profiles[0] == frozenset() and daemon.nvml.core[0] == (300, 900)
    assert asking.ask("set", gpu=GPU, profile="max-q")["error"] == "policy"
    daemon.take_policy(policy())
    assert daemon.nvml.core[0] == (300, 900)


def test_names_of_profiles_are_text(tmp_path):
    path = tmp_path / "wastenotd.toml"
    path.write_text("[[allow]]\nusers = ['root']\nprofiles = [1]\n")
    path.chmod(0o644)
    with pytest.raises(BadInputError, match=r"allow\[1\].profiles: 1 is not the name of a workload power profile"):
        read_policy(path)
    path.write_text("[[allow]]\nusers = ['root']\nprofiles = ['max-q', 'llm-training']\n")
    assert read_policy(path).rules[0].bounds.profiles == {"max-q", "llm-training"}


# ---- a daemon that is a process, and the client that programs have ------------------------------------------------


@pytest.fixture
def daemon(monkeypatch, tmp_path):
    with start_stand_in("b200", gpus=2) as stand_in:
        stand_in.use(monkeypatch)
        monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "state"))
        monkeypatch.setenv(SOCKET_VARIABLE, str(tmp_path / "run" / "wastenotd.sock"))
        daemon = Daemon(stand_in, tmp_path)
        daemon.start(f"heartbeat_s = 30\n[[allow]]\nusers = [{os.getuid()}]\nprofiles = ['max-q', 'network']\n")
        yield daemon
        daemon.stop()


def test_a_program_sees_what_the_card_has_and_the_policy_lists(daemon):
    clocks, control = open_gpu("nvidia:0", allow_clock_control=True).clocks, daemon.stand_in.control
    assert clocks.profiles() == ("max-q",)
    clocks.request(Setting(1410.0, profile="max-q"))
    assert control.state().profiles == {NUMBERS["max-q"]} and len(journals()) == 1
    with pytest.raises(ClocksRefusedError, match="no workload power profile 'llm-training'; it has max-q"):
        clocks.request(Setting(profile="llm-training"))
    clocks.release()
    assert control.state().untouched and journals() == ()


def test_a_profile_that_is_not_enforced_is_refused_through_the_daemon_too(daemon):
    clocks, control = open_gpu("nvidia:0", allow_clock_control=True).clocks, daemon.stand_in.control
    control.enforce_instead(NUMBERS["llm-training"])
    with pytest.raises(ClocksRefusedError, match="max-q was requested, and the GPU enforces llm-training"):
        clocks.request(Setting(profile="max-q"))
    assert control.state().untouched


def test_a_daemon_of_an_earlier_version_would_not_hear_of_profiles_so_none_is_asked_for(daemon):
    clocks = open_gpu("nvidia:0", allow_clock_control=True).clocks
    clocks._allowed().pop("profiles")  # what it does not say
    with pytest.raises(ClocksRefusedError, match="none may be set here"):
        clocks.request(Setting(profile="max-q"))
