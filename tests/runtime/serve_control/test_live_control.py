"""The command itself, on servers under simulated load whose GPUs are those of the stand-in for NVML."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.stand_in.fixtures import start_stand_in
from wastenot.devices.nvidia import journal

ROOT = Path(__file__).parents[3]
ENGINE = ROOT / "data" / "serving" / "llama-8b-sim-h200.json"


@pytest.fixture(scope="module")
def gpus():
    with start_stand_in("h200", gpus=2, memory_lock=True) as server:
        yield server


@pytest.fixture
def stand_in(gpus, monkeypatch, tmp_path):
    gpus.control.reset()
    gpus.use(monkeypatch)
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("WASTENOTD_SOCKET", raising=False)
    monkeypatch.delenv("WASTENOT_READ_ONLY", raising=False)
    return gpus


@contextmanager
def server_under_load(stand_in, gpu=0, rate=5.0, port=0):
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.metrics_server", str(ENGINE), "--socket", stand_in.socket,
         "--gpu", str(gpu), "--rate", str(rate), "--port", str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=stand_in.environment(), text=True,
    )  # fmt: skip
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


class Controller:
    """``wastenot serve-control --json`` in a process of its own, and its events as they come."""

    def __init__(self, stand_in, *arguments, allow=True, **environment):
        command = [sys.executable, "-m", "tests.stand_in.program", "serve-control", str(ENGINE), "--json", *arguments]
        if allow:
            command.append("--allow-clock-control")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            env=stand_in.environment(WASTENOT_STATE=os.environ["WASTENOT_STATE"], **environment),
        )  # fmt: skip
        self.events, self.said = [], queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.said.put(json.loads(line))

    def wait_for(self, *kinds, seconds=60.0):
        """The next event of one of these kinds."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                event = self.said.get(timeout=min(left_s, 1.0))
            except queue.Empty:
                assert self.process.poll() is None, self.process.stderr.read()
                continue
            self.events.append(event)
            if event["event"] in kinds:
                return event
        raise AssertionError(f"no {kinds} in {seconds} s; but {self.events}")

    def wait_for_clock(self):
        """The next clock that is not the driver's own."""
        while (event := self.wait_for("clock"))["core_mhz"] is None:
            pass
        return event

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(30.0)


@pytest.fixture
def controller(stand_in):
    running = []

    def start(*arguments, **more):
        running.append(Controller(stand_in, *arguments, **more))
        return running[-1]

    yield start
    for each in running:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait()
        each.process.stdout.close()
        each.process.stderr.close()


def until(true, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


def clean(stand_in):
    return all(stand_in.control.state(gpu).untouched for gpu in range(2)) and journal.journals() == ()


def ask(port, what):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{what}", timeout=10) as reply:
        return reply.read().decode()


def test_clocks_follow_the_load_and_are_given_back(stand_in, controller):
    with server_under_load(stand_in) as (_, port):
        control = controller("--instance", f"http://127.0.0.1:{port}=nvidia:0", "--period", "0.3")
        clock = control.wait_for_clock()
        assert clock["core_mhz"] < 1980.0 and not clock["dry_run"]
        assert stand_in.control.state(0).locked_core_mhz[1] == clock["core_mhz"]
        assert control.end() == 128 + signal.SIGTERM
    assert clean(stand_in)


def test_nothing_is_set_unless_allowed(stand_in, controller):
    with server_under_load(stand_in) as (_, port):
        control = controller("--instance", f"http://127.0.0.1:{port}=nvidia:0", "--period", "0.3", allow=False)
        assert control.wait_for_clock()["dry_run"]
        assert clean(stand_in) and not stand_in.control.state(0).setters
        control.end(signal.SIGINT)
