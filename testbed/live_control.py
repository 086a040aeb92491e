"""The command that controls servers in a process of its own, and servers for it, on the stand-in for NVML."""

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

from testbed.printed import printed
from wastenot.devices.common import journal

ROOT = Path(__file__).parents[1]
ENGINE = ROOT / "data" / "serving" / "llama-8b-sim-h200.json"


@contextmanager
def server_under_load(stand_in, gpu=0, rate=5.0, port=0):
    process = subprocess.Popen(
        [sys.executable, "-m", "testbed.metrics_server", str(ENGINE), "--socket", stand_in.socket,
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
    """``wastenot serve control --json`` in a process of its own, and its events as they come."""

    def __init__(self, stand_in, *arguments, allow=True, program="testbed.stand_in.program", **environment):
        command = [sys.executable, "-m", program, "serve", "control", str(ENGINE), "--json", *arguments]
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
            event = json.loads(line)
            printed.append(event)
            self.said.put(event)

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
        return self.process.wait(60.0)


def until(true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


def clean(stand_in):
    return all(stand_in.control.state(gpu).untouched for gpu in range(2)) and journal.journals() == ()


def ask(port, what):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{what}", timeout=60) as reply:
        return reply.read().decode()
