"""Real processes: however the client or the daemon ends, the clocks are given back."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from testbed.daemon_process import ROOT, Daemon, until
from testbed.stand_in import apply_kills, kill_runs
from wastenot.core.errors import ClocksRefusedError, DeviceError, WastenotError
from wastenot.core.setting import Setting
from wastenot.devices.clockd import main
from wastenot.devices.clockd.main import main as wastenotd
from wastenot.devices.common import journal
from wastenot.devices.common.clocks import LeasedClocks
from wastenot.devices.common.control import control_here
from wastenot.devices.common.daemon_clocks import _BEATS, DaemonClocks
from wastenot.devices.common.daemon_connection import Connection
from wastenot.devices.common.gpu_driver import setter_of
from wastenot.devices.nvidia.clocks import NvidiaSetter
from wastenot.devices.nvidia.nvml import Nvml
from wastenot.devices.open import open_gpu

CLIENT = """
import os, signal, sys, time
from wastenot.devices.open import open_gpu
from wastenot.devices.nvidia.nvml import Nvml
from wastenot.core.setting import Setting
device = open_gpu("nvidia:0", allow_clock_control=True)
device.clocks.request(Setting(1200.0, None, 500.0))
if sys.argv[1] == "fork" and os.fork() == 0:
    print("set", os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
elif sys.argv[1] != "fork":
    print("set", os.getpid(), flush=True)
time.sleep({"exit": 0, "raise": 0}.get(sys.argv[1], 60))
if sys.argv[1] == "raise":
    raise RuntimeError
"""


class Victim:
    def __init__(self, stand_in, daemon, how="wait"):
        environment = stand_in.environment(WASTENOT_STATE=str(daemon.state), WASTENOTD_SOCKET=str(daemon.socket))
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, how], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
            text=True, start_new_session=True,
        )  # fmt: skip
        said = self.process.stdout.readline().split()
        assert said, "the client could not set clocks"
        self.last = int(said[1])

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def victim(stand_in, daemon):
    victims = []

    def start(how="wait"):
        victims.append(Victim(stand_in, daemon, how))
        if how not in ("exit", "raise"):
            assert not clean(stand_in)
        return victims[-1]

    yield start
    for each in victims:
        try:
            each.end()
        except ProcessLookupError:
            each.process.wait()


def clean(stand_in, index=0):
    return stand_in.control.state(index).untouched and journal.journals() == ()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_client_that_dies_has_given_back(stand_in, daemon, victim, number):
    daemon.start("heartbeat_s = 30\n" + ROOT.replace("heartbeat_s = 1.0", ""))
    client = victim()
    client.process.send_signal(number)
    assert until(lambda: clean(stand_in))
    assert until(lambda: "why=disconnected" in daemon.said())  # not only when heartbeats were missed


@pytest.mark.parametrize("how", ["exit", "raise"])
def test_a_client_that_ends_has_given_back_before_it_is_gone(stand_in, daemon, victim, how):
    daemon.start()
    victim(how).process.wait()
    assert clean(stand_in)


def test_a_client_that_hangs_loses_the_lease_and_is_told_when_it_wakes(stand_in, daemon):
    daemon.start()
    clocks = open_gpu("nvidia:0", allow_clock_control=True).clocks
    clocks.request(Setting(1200.0))
    clocks._session._over.set()  # no more heartbeats, as if the process were stopped
    assert not clean(stand_in) and until(lambda: clean(stand_in) and "missed heartbeats" in daemon.said())
    with pytest.raises(DeviceError, match="ended the lease of its clocks and restored them: no heartbeat for 1 s"):
        clocks.request(Setting(1305.0))
    clocks.request(Setting(1305.0))  # a new lease
    clocks.release()
    assert clean(stand_in)


def test_a_process_that_is_stopped_loses_the_lease(stand_in, daemon, victim):
    daemon.start()
    client = victim()
    client.process.send_signal(signal.SIGSTOP)
    assert until(lambda: clean(stand_in))


def test_heartbeats_keep_the_lease(stand_in, daemon, monkeypatch):
    ask, beats = Connection.ask, threading.Semaphore(0)

    def counted(connection, what, **fields):
        reply = ask(connection, what, **fields)
        if what == "beat":
            beats.release()
        return reply

    monkeypatch.setattr(Connection, "ask", counted)
    daemon.start()
    clocks = open_gpu("nvidia:0", allow_clock_control=True).clocks
    clocks.request(Setting(1200.0))
    assert all(beats.acquire(timeout=60.0) for _ in range(3 * _BEATS))  # for three times as long as silence may last
    assert not clean(stand_in)
    clocks.release()
    assert clean(stand_in)


def test_a_worker_that_outlives_its_parent_keeps_nothing(stand_in, daemon, victim):
    daemon.start("heartbeat_s = 30\n" + ROOT.replace("heartbeat_s = 1.0", ""))
    client = victim("fork")
    client.process.kill()
    assert until(lambda: clean(stand_in), 15.0)
    os.kill(client.last, 0)  # the worker lives


def test_a_forked_child_cannot_use_its_parents_lease(stand_in, daemon):
    daemon.start()
    clocks = open_gpu("nvidia:0", allow_clock_control=True).clocks
    clocks.request(Setting(1200.0))
    child = os.fork()
    if not child:
        try:
            clocks.request(Setting(1305.0))
            os._exit(0)
        except DeviceError as error:
            os._exit(3 if "controls the clocks" in str(error) else 4)
        finally:
            os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert stand_in.control.state().locked_core_mhz == (345, 1200)
    clocks.release()


def test_a_daemon_that_is_stopped_gives_everything_back(stand_in, daemon, victim):
    daemon.start()
    victim()
    assert daemon.stop() == 0 and clean(stand_in)
    assert "stopped restored=True" in daemon.said() and not daemon.socket.exists()


def test_a_daemon_that_was_killed_gives_back_when_it_starts_again(stand_in, daemon, victim):
    daemon.start()
    client = victim()
    daemon.kill()
    (left,) = journal.journals()
    assert not left.owner_alive and left.holder.process == client.process.pid and not clean(stand_in)
    daemon.start()
    assert clean(stand_in) and "restored gpu=" in daemon.said()


def test_a_mistake_in_the_policy_keeps_nothing_changed(stand_in, daemon, victim):
    daemon.start()
    victim()
    daemon.kill()
    daemon.start("[[allow]]\nuser = 3", ready=False)
    assert daemon.process.wait(60.0) == 2 and clean(stand_in) and "restored gpu=" in daemon.said()


def test_a_gpu_that_does_not_answer_keeps_its_index_and_no_other_out(stand_in, daemon, capsys):
    stand_in.control.gpu_lost(0)
    daemon.start(f"[[allow]]\nusers = [{os.getuid()}]\ngpus = [1]")
    assert "cannot control gpu=nvidia:0" in daemon.said()
    assert wastenotd(["--health"]) == 0 and "not answering: nvidia:0" in capsys.readouterr().out
    assert [*daemon.connect(hello=False).ask("hello")["ok"]["gpus"]] == [stand_in.control.state(1).uuid]


def test_what_a_killed_daemon_left_is_also_reset_by_the_next_command_of_root(stand_in, daemon, victim):
    daemon.start()
    victim()
    daemon.kill()
    open_gpu("nvidia:0")
    assert clean(stand_in)


def test_a_client_is_told_that_the_daemon_has_gone_and_comes_back_to_the_next(stand_in, daemon):
    daemon.start()
    clocks = open_gpu("nvidia:0", allow_clock_control=True).clocks
    clocks.request(Setting(1200.0))
    daemon.kill()
    with pytest.raises(DeviceError, match="wastenotd has stopped"):
        clocks.request(Setting(1305.0))
    with pytest.raises(DeviceError, match="no wastenotd listens"):
        clocks.request(Setting(1305.0))
    daemon.start()
    clocks.request(Setting(1305.0))
    clocks.release()
    assert clean(stand_in)


def test_a_claim_whose_heartbeat_met_the_daemons_end_ends_without_an_error(stand_in, daemon):
    daemon.start()
    clocks = open_gpu("nvidia:0", allow_clock_control=True).clocks
    with clocks.claimed():
        clocks.request(Setting(1200.0))
        daemon.stop()
        until(lambda: not any(thread.name == "wastenot-heartbeat" for thread in threading.enumerate()))
        with pytest.raises(DeviceError, match="wastenotd has stopped"):
            clocks.request(Setting(1005.0))
    assert stand_in.control.state(0).untouched


def test_there_is_one_daemon(daemon):
    daemon.start()
    second = subprocess.run(
        [sys.executable, "-m", "wastenot.devices.clockd.main", "--policy", str(daemon.policy)],
        env=daemon.stand_in.environment(WASTENOT_STATE=str(daemon.state), WASTENOTD_SOCKET=str(daemon.socket)),
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert second.returncode == 1 and "another wastenotd is using" in second.stderr and daemon.process.poll() is None
    assert daemon.connect().ask("status")["ok"] == {"leases": {}}


def test_the_folder_of_journals_is_roots_alone(daemon):
    daemon.state.mkdir(mode=0o755)
    daemon.start()
    assert stat.S_IMODE(daemon.state.stat().st_mode) == 0o700


def test_the_socket_is_the_groups(daemon):
    daemon.start(f"group = {os.getgid()}\n{ROOT}")
    about = daemon.socket.stat()
    assert stat.S_IMODE(about.st_mode) == 0o660 and about.st_gid == os.getgid()


def test_a_policy_is_read_again_and_one_with_a_mistake_is_not_taken(stand_in, daemon, victim):
    daemon.start()
    victim()
    daemon.policy.write_text("[[allow]]\nuser = 3")
    daemon.signal(signal.SIGHUP)
    assert until(lambda: 'kept="the previous one"' in daemon.said()) and "allow[1].user" in daemon.said()
    assert not clean(stand_in)
    daemon.policy.write_text("")
    daemon.signal(signal.SIGHUP)
    assert until(lambda: clean(stand_in) and "no longer allowed" in daemon.said())


def test_a_mistake_in_one_file_keeps_no_rule_alive_that_another_has_taken_back(stand_in, daemon, victim):
    jobs = daemon.state / "policy.d"
    jobs.mkdir(mode=0o700, parents=True)
    (jobs / "job-1.toml").write_text(f"[[allow]]\nusers = [{os.getuid()}]\n")
    daemon.start("heartbeat_s = 30\n")
    victim()
    (jobs / "job-1.toml").unlink()
    (jobs / "job-2.toml").write_text("?")
    daemon.signal(signal.SIGHUP)
    assert until(lambda: clean(stand_in) and "no longer allowed" in daemon.said()) and "job-2.toml" in daemon.said()


def test_a_probe_asks_whether_it_answers(stand_in, daemon, monkeypatch, capsys):
    assert wastenotd(["--health"]) == 1 and "no wastenotd listens" in capsys.readouterr().out
    daemon.start()
    assert wastenotd(["--health"]) == 0 and capsys.readouterr().out == "wastenotd answers: 0 leases\n"
    daemon.signal(signal.SIGSTOP)
    monkeypatch.setattr(main, "_HEALTH_S", 0.2)
    assert wastenotd(["--health"]) == 1  # though the socket is there


def test_a_daemon_whose_connections_are_all_taken_is_well(daemon, monkeypatch, capsys):
    daemon.start(f"connections_per_user = 2\n{ROOT}")
    taken = [daemon.connect() for _ in range(2)]
    monkeypatch.setattr(main, "_HEALTH_S", 0.2)
    assert wastenotd(["--health"]) == 0 and "wastenotd is busy" in capsys.readouterr().out
    for each in taken:
        each.close()


def test_the_sockets_group_is_read_again(daemon):
    if os.geteuid() != 0:
        pytest.skip("only root can give a socket to any group")
    daemon.start(f"group = 4242\n{ROOT}")
    for group, policy in ((4243, f"group = 4243\n{ROOT}"), (os.getegid(), ROOT)):
        daemon.policy.write_text(policy)
        daemon.signal(signal.SIGHUP)
        assert until(lambda group=group: daemon.socket.stat().st_gid == group)
    assert stat.S_IMODE(daemon.socket.stat().st_mode) == 0o660


def test_systemd_is_told_when_it_is_ready_and_when_a_reload_is_over(daemon, monkeypatch, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(60.0)
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

        def told():
            deadline = time.monotonic() + 60.0
            while (said := systemd.recv(4096).decode()) == "WATCHDOG=1":
                assert time.monotonic() < deadline
            return said

        daemon.start()
        assert told() == "READY=1"
        for policy in (ROOT, "[[allow]]\nuser = 3"):  # also where the policy is wrong
            daemon.policy.write_text(policy)
            asked_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            daemon.signal(signal.SIGHUP)
            reloading, at = told().split("\nMONOTONIC_USEC=")
            assert reloading == "RELOADING=1" and asked_us <= int(at) and told() == "READY=1"
        daemon.signal(signal.SIGTERM)
        assert told() == "STOPPING=1"


def test_a_gpu_that_root_controls_itself_is_not_given(stand_in, daemon, monkeypatch):
    daemon.start()
    through = open_gpu("nvidia:0", allow_clock_control=True).clocks
    monkeypatch.delenv("WASTENOTD_SOCKET")
    direct = open_gpu("nvidia:0", allow_clock_control=True).clocks
    if isinstance(direct, DaemonClocks):
        pytest.skip("another user than root: mount would be refused too")
    direct.request(Setting(1200.0))
    monkeypatch.setenv("WASTENOTD_SOCKET", str(daemon.socket))
    with pytest.raises(DeviceError, match=f"process {os.getpid()} .* controls the clocks"):
        through.request(Setting(1305.0))
    direct.release()
    through.request(Setting(1305.0))
    with pytest.raises(DeviceError, match=r"through wastenotd.* controls the clocks"):
        direct.request(Setting(1200.0))
    through.release()
    assert clean(stand_in)


def test_what_a_killed_command_of_root_left_is_restored_by_a_daemon_that_runs(stand_in, daemon, monkeypatch):
    daemon.start()
    child = os.fork()
    if not child:
        os.environ.pop("WASTENOTD_SOCKET")
        nvml = Nvml(allow_changes=True)
        LeasedClocks(NvidiaSetter(nvml, nvml.call("nvmlDeviceGetHandleByIndex", 0), "GPU-x")).hold()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert not daemon.said().count("left_by") and until(lambda: "cannot restore" in daemon.said(), 15.0)  # there is no GPU-x
    assert daemon.process.poll() is None
    journal.end(journal.journals()[0].path)
    uuid = stand_in.control.state().uuid
    child = os.fork()
    if not child:
        LeasedClocks(setter_of(uuid)).request(Setting(1200.0))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert not clean(stand_in) and until(lambda: clean(stand_in), 15.0)
    assert until(lambda: f'left_by="process {child} (user ' in daemon.said())


def test_two_gpus_at_once_from_two_threads(stand_in, daemon):
    daemon.start()

    def work(index):
        clocks = open_gpu(f"nvidia:{index}", allow_clock_control=True).clocks
        for core in (1200.0, 1305.0) * 10:
            clocks.request(Setting(core))
        clocks.release()

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clean(stand_in) and stand_in.control.state(1).untouched
    assert until(lambda: daemon.said().count("requests=20") == 2)


# ---- why not --------------------------------------------------------------------------------------------------


def refusal():
    return open_gpu("nvidia:0", allow_clock_control=True).clocks.refusal()


def test_why_clocks_cannot_be_set_is_told_by_cause(stand_in, daemon, monkeypatch):
    assert "no wastenotd listens on" in refusal()
    daemon.start(f"[[allow]]\nusers = [{os.getuid() + 1}]")
    assert f"does not let this user (ID {os.getuid()}) set clocks" in refusal()
    with pytest.raises(ClocksRefusedError, match="the policy of wastenotd does not let"):
        open_gpu("nvidia:0", allow_clock_control=True).clocks.request(Setting(1200.0))
    daemon.stop()
    daemon.start()
    assert refusal() is None
    monkeypatch.setenv("WASTENOT_READ_ONLY", "1")
    assert "WASTENOT_READ_ONLY=1" in refusal()


NOBODY = 65534


def say_as_user(cores):
    """What another user meets: the way to set clocks, why not, and what became of each request."""
    clocks = open_gpu("nvidia:0", allow_clock_control=True).clocks
    said = [f"{control_here().way}|{clocks.refusal()}"]
    for core in cores:
        try:
            clocks.request(Setting(float(core)))
            said.append("set")
        except WastenotError as error:
            said.append(str(error))
    clocks.release()
    return said


@pytest.fixture
def as_nobody(stand_in, monkeypatch):
    """Runs :func:`say_as_user` as another user, with a daemon in a folder that everybody may enter."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user, or mount anything")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        nvml = Path(stand_in.socket)
        nvml.parent.chmod(0o755)
        nvml.chmod(0o777)
        daemon = Daemon(stand_in, folder)
        monkeypatch.setenv("WASTENOTD_SOCKET", str(daemon.socket))

        def run(*cores, groups=()):
            reading, writing = os.pipe()
            child = os.fork()  # which has all modules that another user might not be allowed to read
            if not child:
                try:
                    os.setgroups(groups)
                    os.setgid(NOBODY)
                    os.setuid(NOBODY)
                    os.environ.pop("WASTENOT_STATE")
                    os.environ["XDG_STATE_HOME"] = str(folder / "home")
                    os.write(writing, json.dumps(say_as_user(cores)).encode())
                except BaseException as error:
                    os.write(writing, json.dumps([repr(error)]).encode())
                os._exit(0)
            os.close(writing)
            with os.fdopen(reading) as stream:
                said = json.load(stream)
            os.waitpid(child, 0)
            return said

        yield daemon, run
        if daemon.process is not None:
            daemon.stop()


def test_another_user_gets_what_the_policy_allows_and_no_more(stand_in, as_nobody):
    daemon, run = as_nobody
    assert "no wastenotd listens" in run()[0]
    daemon.start(f"group = 4242\n[[allow]]\nusers = [{NOBODY}]\ncore_mhz = [900, 1305]")
    [said] = run()
    assert "members of the group '4242'" in said and "usermod -aG 4242" in said
    assert run(1200, 1500, groups=[4242]) == [
        "daemon|None", "set",
        f"{stand_in.control.state().uuid}: the policy of wastenotd allows a core clock of 900 to 1305 MHz",
    ]  # fmt: skip
    assert stand_in.control.state().untouched
    daemon.stop()
    daemon.start("group = 4242\n[[allow]]\ngroups = [4243]")
    assert f"(ID {NOBODY})" in run(groups=[4242])[0]
    assert run(1200, groups=[4242, 4243]) == ["daemon|None", "set"]
    assert stand_in.control.state().untouched and f"user={NOBODY}" in daemon.said()


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("client", 3),
        ("both", 3),
        ("budget", 3),
        *(pytest.param(kind, 10, marks=pytest.mark.slow) for kind in ("hang", "daemon", "both")),
    ],
)
def test_kills_leave_nothing_behind(kind, kills):
    journals_there = 0
    for seed in range(kills, kills + 5):  # more rounds where every kill happened to fall between two requests
        counts = kill_runs.main(kind, kills, seed)
        assert counts["kills"] == kills and counts["left"] == 0
        journals_there += counts["journal_there"]
        if journals_there:
            break
    assert journals_there > 0  # or nothing was tried


@pytest.mark.parametrize(
    "kind", [apply_kills.KINDS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in apply_kills.KINDS[1:])]
)
def test_kills_of_apply_leave_nothing_behind(kind):
    counts = apply_kills.main(kind, 2, 3)
    assert counts["kills"] == 2 and counts["left"] == 0
