"""Which way clocks are set, and what is said where there is none."""

import socket
from contextlib import suppress

import pytest

from testbed.stand_in.controlled import controlled, locks
from wastenot.core.errors import ClocksRefusedError, DeviceError
from wastenot.core.setting import Setting
from wastenot.devices.common import control, daemon_connection, daemon_protocol
from wastenot.devices.common.control import control_here, control_that_works
from wastenot.devices.common.daemon_clocks import DaemonClocks
from wastenot.devices.common.daemon_protocol import SOCKET_VARIABLE
from wastenot.devices.common.journal import Holder
from wastenot.devices.common.rights import Rights

ROOT = Rights(root=True, sys_admin=True, container=None, forbidden=None)
USER = Rights(root=False, sys_admin=False, container=None, forbidden=None)
IN_CONTAINER = Rights(root=True, sys_admin=False, container="Docker", forbidden=None)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Where a daemon would listen."""
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    monkeypatch.setattr(daemon_protocol, "SOCKET", tmp_path / "wastenotd.sock")
    return tmp_path / "wastenotd.sock"


@pytest.fixture
def answers(path):
    """A daemon that gives one answer to everybody, whatever it is asked."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()

    def answer(line):
        import threading

        def serve():
            with suppress(OSError):  # until the test is over
                while True:  # who is told that it is busy asks again
                    accepted, _ = listening.accept()
                    with accepted:
                        accepted.recv(4096)
                        accepted.sendall(line)

        threading.Thread(target=serve, daemon=True).start()

    yield answer
    listening.close()


@pytest.mark.parametrize(
    ("rights", "said"),
    [(USER, "they need root (sudo), or wastenotd"), (IN_CONTAINER, "they need CAP_SYS_ADMIN in this container")],
)
def test_without_rights_and_without_a_daemon_it_says_what_would_help(path, rights, said):
    found = control_here(rights)
    assert found.way == "none" and said in found.missing and str(path) in found.missing
    assert control_that_works(rights) == found


def test_root_needs_no_daemon_unless_one_is_named(path, answers, monkeypatch):
    assert control_here(ROOT).way == "direct" and control_here(USER).way == "daemon"
    monkeypatch.setenv(SOCKET_VARIABLE, str(path))
    assert control_here(ROOT).way == "daemon"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"wastenot": 2, "ok": {"user": 0}}\n', "speaks version 2 of its protocol, this wastenot version 1"),
        (b'{"wastenot": 1, "error": "version", "text": "..."}\n', "install the same wastenot on both sides"),
        (b'{"wastenot": 1, "error": "busy", "text": "too many connections of this user"}\n', "too many connections"),
        (b'{"wastenot": 1, "ok": {}}\n', "invalid reply"),
        (b'{"wastenot": 1, "ok": 3}\n', "wastenotd refuses"),
        (
            b'{"wastenot": 1, "ok": {"user": 7, "heartbeat_s": 10, "gpus": {}, "leases": {}}}\n',
            "allows this user (ID 7) no GPUs",
        ),
        (b"no JSON\n", "wastenotd has stopped"),
        (b"half a line", "wastenotd has stopped"),
        (b"", "wastenotd has stopped"),
    ],
)
def test_whatever_a_daemon_answers_is_told_in_a_line(path, answers, line, said, monkeypatch):
    monkeypatch.setattr(daemon_connection, "_BUSY_S", 0.1)
    answers(line)
    found = control_that_works(USER)
    assert found.way == "none" and said in found.missing and "\n" not in found.missing


def test_a_daemon_one_minor_version_back_is_understood_and_no_older_one(path, answers, monkeypatch):
    monkeypatch.setattr(daemon_protocol, "MINOR", 3)
    hello = b'{"wastenot": 1, "ok": {"minor": %d, "user": 7, "heartbeat_s": 10, "gpus": {"GPU-x": {}}, "leases": {}}}\n'
    answers(hello % 1)
    assert "install the same wastenot on both sides" in control_that_works(USER).missing


@pytest.mark.parametrize("minor", [2, 3, 4])
def test_a_daemon_that_is_not_much_older_is_understood(path, answers, monkeypatch, minor):
    monkeypatch.setattr(daemon_protocol, "MINOR", 3)
    hello = b'{"wastenot": 1, "ok": {"minor": %d, "user": 7, "heartbeat_s": 10, "gpus": {"GPU-x": {}}, "leases": {}}}\n'
    answers(hello % minor)
    assert control_that_works(USER).allowed == ("GPU-x",)


def test_who_has_a_gpu_through_the_daemon_is_known_without_its_journals(path, answers):
    leases = b'{"GPU-x": {"user": 1, "process": 4711}, "GPU-y": {"unrestored": true, "why": "?"}}'
    answers(b'{"wastenot": 1, "ok": {"user": 7, "heartbeat_s": 10, "gpus": {"GPU-x": {}}, "leases": %s}}\n' % leases)
    assert control_that_works(USER).held == {"GPU-x": Holder(4711, 1, through_daemon=True)}


def test_a_socket_that_nobody_listens_on(path):
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.close()
    assert "no wastenotd listens on" in control_that_works(USER).missing


def test_who_may_not_set_clocks_is_told_before_and_when_the_driver_refuses(path, stand_in, monkeypatch):
    monkeypatch.setattr(control, "rights_here", lambda: USER)
    clocks = controlled(stand_in).clocks
    assert "this process may not set clocks: they need root" in clocks.refusal()
    stand_in.control.fault("nvmlDeviceSet*", "NO_PERMISSION")
    with pytest.raises(ClocksRefusedError, match=r"no permission.*or wastenotd, which is not listening here"):
        clocks.request(Setting(1200.0))
    assert locks(stand_in) == (None, None, 700.0)


def test_a_daemon_that_does_not_answer_sets_nothing(path, answers, stand_in, monkeypatch):
    monkeypatch.setattr(control, "rights_here", lambda: USER)
    clocks = controlled(stand_in).clocks
    assert isinstance(clocks, DaemonClocks)
    answers(b"")
    with pytest.raises(DeviceError, match="wastenotd has stopped"):
        clocks.request(Setting(1200.0))
    assert locks(stand_in) == (None, None, 700.0)
