"""A GPU whose driver does not return from a call keeps nobody waiting who uses another, and is consistent when it does."""

import signal
import socket
import time

import pytest

from testbed.daemon_in_process import UUIDS, running
from testbed.daemon_process import ROOT, until
from testbed.stand_in.controlled import locks
from wastenot.core.errors import DeviceError
from wastenot.core.setting import Setting
from wastenot.devices.clockd import leases as leases_module
from wastenot.devices.clockd.main import main as wastenotd
from wastenot.devices.clockd.policy import Bounds, Policy, Rule
from wastenot.devices.common import journal, patience
from wastenot.devices.open import open_gpu

FIRST, SECOND = UUIDS
BOTH = Rule(frozenset({1000, 1001}), frozenset(), None, Bounds())
POLICY = Policy((BOTH,), heartbeat_s=1000.0, requests_per_s=1000.0)
SET, UNDO = "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"
CLEAN = (None, None, 700.0)


@pytest.fixture
def daemon_here():
    with running(POLICY) as daemon:
        yield daemon
        assert daemon.mistakes() == []


@pytest.fixture
def holder(daemon_here):
    """A client that has set the clock of the first GPU, whose driver hangs from now on."""
    client = greeted(daemon_here, 1000)
    client.ask("acquire", gpu=FIRST)
    assert kind(client.ask("set", gpu=FIRST, core_mhz=900)) == "ok"
    daemon_here.nvml.hangs.add(0)
    return client


def greeted(daemon, user):
    client = daemon.connect(user=user)
    client.ask("hello")
    return client


def kind(reply):
    return reply and reply.get("error", "ok")


def events(daemon, name):
    return [fields for event, fields in daemon.events if event == name]


def test_other_gpus_are_served_while_one_hangs(daemon_here, holder):
    assert holder.ask("set", gpu=FIRST, core_mhz=1200) is None
    other = greeted(daemon_here, 1001)
    other.ask("acquire", gpu=SECOND)
    for core in (900, 1200, 600):
        assert kind(other.ask("set", gpu=SECOND, core_mhz=core)) == "ok" and daemon_here.nvml.core[1] == (300, core)
    assert kind(other.ask("release", gpu=SECOND)) == "ok" and not daemon_here.nvml.changed(1)
    assert daemon_here.journals() == [FIRST] and holder.reply() is None


def test_who_waits_for_a_gpu_that_hangs_is_told_and_it_is_restored_when_it_answers(daemon_here, holder):
    other = greeted(daemon_here, 1001)
    assert holder.ask("set", gpu=FIRST, core_mhz=1200) is None and other.ask("acquire", gpu=FIRST) is None
    daemon_here.pass_time(4.9)
    assert holder.reply() is None
    daemon_here.pass_time(0.2)
    for told in (holder.reply(), other.reply(), other.ask("acquire", gpu=FIRST), holder.ask("set", gpu=FIRST, core_mhz=600)):
        assert kind(told) == "device" and told["text"].startswith("GPU 0 does not answer: a call of its driver")
    assert other.ask("hello")["ok"]["missing"] == [f"GPU 0 ({FIRST})"] and not daemon_here.leases.holds_any(holder)
    daemon_here.nvml.answer(0)
    daemon_here.go()
    assert not daemon_here.nvml.changed(0) and daemon_here.journals() == []  # what was refused is not in force
    assert other.ask("hello")["ok"]["missing"] == [] and len(events(daemon_here, "answers again")) == 1
    told = holder.ask("set", gpu=FIRST, core_mhz=1200)
    assert kind(told) == "lost" and "the driver did not answer for 5 s" in told["text"]
    assert kind(other.ask("set", gpu=FIRST, core_mhz=900)) == "lost"  # it was told that it has no lease
    assert kind(other.ask("acquire", gpu=FIRST)) == "ok" and kind(other.ask("set", gpu=FIRST, core_mhz=900)) == "ok"


def test_a_call_that_only_takes_long_is_waited_for(daemon_here, holder):
    holder.ask("set", gpu=FIRST, core_mhz=1200)
    daemon_here.pass_time(4.0)
    daemon_here.nvml.answer(0)
    daemon_here.go()
    assert kind(holder.reply()) == "ok" and daemon_here.nvml.core[0] == (300, 1200) and daemon_here.journals() == [FIRST]


def test_an_undo_that_hangs_is_told_and_nobody_gets_the_gpu_before(daemon_here, holder):
    assert holder.ask("release", gpu=FIRST) is None
    daemon_here.pass_time(5.1)
    assert "does not answer" in holder.reply()["text"] and daemon_here.journals() == [FIRST]
    other = greeted(daemon_here, 1001)
    assert kind(other.ask("acquire", gpu=FIRST)) == "device"
    daemon_here.nvml.answer(0)
    daemon_here.go()
    assert not daemon_here.nvml.changed(0) and daemon_here.journals() == [] and kind(other.ask("acquire", gpu=FIRST)) == "ok"


def test_nothing_is_set_for_who_has_gone_while_it_hung(daemon_here, holder):
    other = greeted(daemon_here, 1000)
    holder.ask("set", gpu=FIRST, core_mhz=1200)
    assert other.ask("acquire", gpu=FIRST) is None
    holder.socket.shutdown(1), other.close()
    daemon_here.go()
    assert not holder.hung_up()  # who reads the end of the connection believes that clocks are restored
    daemon_here.pass_time(5.1)
    assert holder.hung_up()
    daemon_here.nvml.answer(0)
    daemon_here.go()
    assert not daemon_here.nvml.changed(0) and daemon_here.journals() == [] and daemon_here.leases.status() == {}
    assert [fields["why"] for fields in events(daemon_here, "end of lease")] == ["disconnected"]


def test_a_lease_that_ends_while_the_gpu_hangs_ends_when_it_answers(daemon_here, holder):
    daemon_here.take_policy(Policy((Rule(BOTH.users, BOTH.groups, None, Bounds((300.0, 600.0))),), heartbeat_s=10.0))
    daemon_here.pass_time(10.1)  # of silence, while it is brought within the policy
    assert daemon_here.nvml.core[0] == (300, 900) and not daemon_here.leases.holds_any(holder)
    daemon_here.nvml.answer(0)
    daemon_here.go()
    assert not daemon_here.nvml.changed(0) and daemon_here.journals() == []
    assert [fields["why"] for fields in events(daemon_here, "end of lease")] == ["missed heartbeats"]


def test_a_policy_holds_for_a_gpu_that_hung_when_it_answers(daemon_here, holder):
    def bounded(high):
        daemon_here.take_policy(Policy((Rule(BOTH.users, BOTH.groups, None, Bounds((300.0, high))),), heartbeat_s=1000.0))

    bounded(600.0)
    assert not daemon_here.leases.has_taken_policy() and daemon_here.nvml.core[0] == (300, 900)
    daemon_here.pass_time(5.1)
    for _ in range(100):
        bounded(300.0)
    assert daemon_here.leases.has_taken_policy()  # but for the one that does not answer
    assert daemon_here.leases.numbers()[FIRST][0] < 10
    daemon_here.nvml.answer(0)
    daemon_here.go()
    assert daemon_here.nvml.core[0] == (300, 300) and daemon_here.journals() == [FIRST]
    assert kind(holder.ask("set", gpu=FIRST, core_mhz=600)) == "policy"
    assert kind(holder.ask("set", gpu=FIRST, core_mhz=300)) == "ok"  # the lease has not ended


def test_nothing_more_waits_for_a_gpu_that_hangs_however_often_it_is_asked(daemon_here, holder):
    holder.ask("set", gpu=FIRST, core_mhz=1200)
    daemon_here.pass_time(5.1)
    holder.reply()
    for _ in range(50):
        other = greeted(daemon_here, 1001)
        assert {kind(each.ask(ask, gpu=FIRST)) for each in (holder, other) for ask in ("acquire", "release")} == {"device"}
        other.close()
    assert daemon_here.leases.numbers()[FIRST][0] < 10
    daemon_here.nvml.answer(0)


def test_only_so_much_waits_for_a_gpu(daemon_here, holder, monkeypatch):
    monkeypatch.setattr(leases_module, "_QUEUED", 3)
    holder.ask("set", gpu=FIRST, core_mhz=1200)
    others = [greeted(daemon_here, 1001) for _ in range(4)]
    assert [kind(each.ask("acquire", gpu=FIRST)) for each in others] == [None, None, "busy", "busy"]
    assert kind(others[2].ask("acquire", gpu=SECOND)) == "ok"
    daemon_here.nvml.answer(0)
    daemon_here.go()
    assert [kind(each.reply()) for each in others[:2]] == ["leased"] * 2 and kind(holder.reply()) == "ok"


# ---- real processes -----------------------------------------------------------------------------------------------


@pytest.fixture
def hanging(stand_in, daemon):
    """A daemon with a lease of both GPUs, of which the driver of the first hangs in a call; two clients."""
    daemon.start(ROOT.replace("1.0", "60"))
    clients = [daemon.connect(), daemon.connect()]
    for index, client in enumerate(clients):
        client.gpu = stand_in.control.state(index).uuid
        assert "ok" in client.ask("acquire", gpu=client.gpu) and "ok" in client.ask("set", gpu=client.gpu, core_mhz=1200)
    return clients


def hang_in_a_set(stand_in, client):
    """Have a set of the first client hang, and return when it does."""
    stand_in.control.fault(SET, index=0, hangs=True)
    client.send(b'{"wastenot": 1, "ask": "set", "gpu": "%s", "core_mhz": 1305}\n' % client.gpu.encode())
    assert until(lambda: stand_in.control.hanging() == 1)


def test_one_that_hangs_for_seconds_is_told_named_and_consistent_afterwards(stand_in, daemon, hanging, capsys):
    first, second = hanging
    hang_in_a_set(stand_in, first)
    began_s, served = time.monotonic(), 0
    while "does not answer gpu=" not in daemon.said():
        assert "ok" in second.ask("set", gpu=second.gpu, core_mhz=1305 if served % 2 else 1200)
        served += 1
    assert served > 20 and "GPU 0 does not answer" in first.reply()["text"] and time.monotonic() - began_s < 60.0
    assert wastenotd(["--health"]) == 0 and f"not answering: GPU 0 ({first.gpu})" in capsys.readouterr().out
    stand_in.control.clear_faults()
    assert until(lambda: locks(stand_in, 0) == CLEAN) and until(lambda: len(journal.journals()) == 1)
    assert until(lambda: wastenotd(["--health"]) == 0 and "not answering" not in capsys.readouterr().out)
    assert first.ask("set", gpu=first.gpu, core_mhz=1200)["error"] == "lost"
    assert "ok" in first.ask("acquire", gpu=first.gpu) and "ok" in first.ask("set", gpu=first.gpu, core_mhz=1200)


def test_a_program_is_told_and_may_try_again(stand_in, daemon):
    daemon.start(ROOT)
    clocks = open_gpu("nvidia:0", allow_clock_control=True).clocks
    stand_in.control.fault(SET, index=0, hangs=True)
    with pytest.raises(DeviceError, match="GPU 0 does not answer"):
        clocks.request(Setting(1200.0))
    stand_in.control.clear_faults()
    assert until(lambda: locks(stand_in, 0) == CLEAN and journal.journals() == ())
    assert until(lambda: "answers again" in daemon.said())
    clocks.request(Setting(1200.0))
    clocks.release()


@pytest.mark.parametrize("call", [SET, UNDO])
def test_a_stop_gives_back_what_can_be_and_says_which_gpu_hung(stand_in, daemon, hanging, call):
    first, _ = hanging
    if call == SET:
        hang_in_a_set(stand_in, first)
    else:
        stand_in.control.fault(UNDO, index=0, hangs=True)
    daemon.signal(signal.SIGTERM)
    assert daemon.process.wait(60.0) == 1 and f'hung="GPU 0 ({first.gpu})"' in daemon.said()
    assert locks(stand_in, 1) == CLEAN and [each.uuid for each in journal.journals()] == [first.gpu]
    stand_in.control.clear_faults()
    daemon.start(ROOT)
    assert until(lambda: locks(stand_in, 0) == CLEAN and journal.journals() == ())


def test_what_a_killed_daemon_left_is_restored_but_for_the_gpu_that_hangs(stand_in, daemon, hanging, capsys):
    first, second = hanging
    hang_in_a_set(stand_in, first)
    assert "ok" in second.ask("set", gpu=second.gpu, core_mhz=1305)
    daemon.process.kill()
    daemon.process.wait()
    assert len(journal.journals()) == 2 and locks(stand_in, 1) != CLEAN
    assert wastenotd(["--recover"]) == 1
    said = capsys.readouterr().err
    assert f"cannot restore gpu={first.gpu}" in said and "the driver has not answered for 5 s" in said
    assert locks(stand_in, 1) == CLEAN and [each.uuid for each in journal.journals()] == [first.gpu]
    stand_in.control.clear_faults()
    assert until(lambda: wastenotd(["--recover"]) == 0 and journal.journals() == ()) and locks(stand_in, 0) == CLEAN


def test_what_hangs_while_the_next_daemon_restores_it_is_named_and_restored_when_it_answers(
    stand_in, daemon, hanging, capsys
):
    first, _ = hanging
    daemon.kill()
    stand_in.control.fault(UNDO, index=0, hangs=True)
    daemon.start(ROOT)
    assert locks(stand_in, 1) == CLEAN and [each.uuid for each in journal.journals()] == [first.gpu]
    assert wastenotd(["--health"]) == 0 and f"not answering: GPU 0 ({first.gpu})" in capsys.readouterr().out
    assert "GPU 0 does not answer" in daemon.connect().ask("acquire", gpu=first.gpu)["text"]
    stand_in.control.clear_faults()
    assert until(lambda: locks(stand_in, 0) == CLEAN and journal.journals() == ())


def test_systemd_hears_of_the_daemon_and_of_its_reloads_while_a_gpu_hangs(stand_in, daemon, monkeypatch, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(60.0)
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        daemon.start(ROOT.replace("1.0", "60"))
        client, uuid = daemon.connect(), stand_in.control.state().uuid
        client.ask("acquire", gpu=uuid), client.ask("set", gpu=uuid, core_mhz=1500)
        stand_in.control.fault(SET, index=0, hangs=True)
        daemon.policy.write_text(ROOT.replace("1.0", "60") + "core_mhz = [900, 1200]\n")
        daemon.signal(signal.SIGHUP)
        said = []
        while "READY=1" not in said[1:]:  # the first is of the start
            said.append(systemd.recv(4096).decode().partition("\n")[0])
        assert said[0] == "READY=1" and said.index("RELOADING=1") < len(said) - 3 and "WATCHDOG=1" in said[-4:]
        assert locks(stand_in, 0)[0] == (345, 1500)
        stand_in.control.clear_faults()
        assert until(lambda: locks(stand_in, 0)[0] == (345, 1200)) and len(journal.journals()) == 1
        assert until(lambda: "ok" in client.ask("set", gpu=uuid, core_mhz=1005))  # the lease goes on


def test_a_gpu_that_hangs_when_the_daemon_starts_keeps_no_other_out(stand_in, daemon):
    stand_in.control.fault("nvmlDeviceGetUUID", index=0, hangs=True, times=1)
    daemon.start(ROOT)
    assert "cannot control gpu=nvidia:0" in daemon.said()
    client, uuid = daemon.connect(), stand_in.control.state(1).uuid
    assert "ok" in client.ask("acquire", gpu=uuid) and "ok" in client.ask("set", gpu=uuid, core_mhz=1200)
    stand_in.control.clear_faults()
    assert until(lambda: "answers again" in daemon.said())


def test_calls_that_return_are_not_kept_waiting_by_one_that_does_not():
    def never():
        time.sleep(60.0)

    found = patience.answers([lambda: 1, never, lambda: 1 // 0], 0.1)
    assert found[0] == 1 and isinstance(found[1], patience.NoAnswerError) and isinstance(found[2], ZeroDivisionError)
