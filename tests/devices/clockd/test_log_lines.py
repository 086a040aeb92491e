"""Logging makes nobody wait, and no user can fill the log."""

import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from testbed.daemon_process import ROOT, Client, until
from wastenot.devices.clockd import log_lines
from wastenot.devices.clockd.log_lines import Lines, Shares


def test_a_write_that_blocks_makes_nobody_wait_and_what_is_lost_is_counted(monkeypatch):
    monkeypatch.setattr(log_lines, "_QUEUED", 10)
    reads, written = threading.Event(), []

    def write(line):
        reads.wait(60.0)
        written.append(line)

    lines = Lines(write, lambda count: f"lines={count} lost")
    for number in range(100):
        lines.put(str(number))
    reads.set()
    lines.close(60.0)
    kept = [line for line in written if line.isdigit()]
    [dropped] = [line for line in written if not line.isdigit()]
    assert kept == [str(number) for number in range(len(kept))] and 10 <= len(kept) <= 11
    assert f"lines={100 - len(kept)} " in dropped


def test_who_never_reads_does_not_keep_it_from_ending():
    never = threading.Event()
    lines = Lines(lambda line: never.wait(60.0), str)
    lines.put("x")
    lines.close(0.1)
    never.set()


def test_a_user_has_so_many_lines_a_minute_and_others_theirs():
    said, now_s = [], 0.0
    log = Shares(lambda event, **fields: said.append((event, fields.get("user"))), lambda: now_s)
    for _ in range(1000):
        log("set", user=1000)
    log("set", user=1001)
    log("cannot restore")
    assert said == [("set", 1000)] * 300 + [("set", 1001), ("cannot restore", None)]
    now_s, said[:] = 61.0, []
    log("set", user=1000)
    assert said == [("log", 1000), ("set", 1000)]


@pytest.fixture
def full():
    """A pipe that takes nothing any more."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(writing, True)
    yield writing
    os.close(reading), os.close(writing)


def listens(path):
    """Whether a daemon takes connections: its socket is there a moment before."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        return one.connect_ex(str(path)) == 0


def test_a_log_that_nobody_reads_does_not_stop_the_daemon(stand_in, tmp_path, full):
    policy, path = tmp_path / "wastenotd.toml", tmp_path / "run" / "wastenotd.sock"
    policy.write_text(ROOT.replace("1.0", "30"))
    process = subprocess.Popen(
        [sys.executable, "-m", "wastenot.devices.clockd.main", "--policy", str(policy)], stderr=full,
        env=stand_in.environment(WASTENOT_STATE=str(tmp_path / "state"), WASTENOTD_SOCKET=str(path)),
    )  # fmt: skip
    try:
        assert until(lambda: process.poll() is None and listens(path))  # its log says nothing here
        client, gpu = Client(str(path)), stand_in.control.state().uuid
        client.ask("hello")
        for _ in range(20):
            assert "ok" in client.ask("acquire", gpu=gpu) and "ok" in client.ask("set", gpu=gpu, core_mhz=1200)
            assert "ok" in client.ask("release", gpu=gpu)
        client.ask("acquire", gpu=gpu), client.ask("set", gpu=gpu, core_mhz=1200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60.0) == 0 and stand_in.control.state().untouched
    finally:
        process.kill()
        process.wait()
