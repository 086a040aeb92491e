"""wastenotd as a process of its own, on the stand-in for NVML."""

import os
import signal
from contextlib import suppress

import pytest

from testbed.daemon_process import Daemon
from testbed.stand_in.fixtures import start_stand_in
from wastenot.devices.common.daemon_protocol import SOCKET_VARIABLE


@pytest.fixture(scope="session")
def gpus():
    with start_stand_in("h200", gpus=2, memory_lock=True) as server:
        yield server


@pytest.fixture
def stand_in(gpus, monkeypatch, tmp_path):
    """Two H200, fresh; clocks are set through the daemon."""
    gpus.control.reset()
    gpus.use(monkeypatch)
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv(SOCKET_VARIABLE, str(tmp_path / "run" / "wastenotd.sock"))
    return gpus


@pytest.fixture
def daemon(stand_in, tmp_path):
    daemon = Daemon(stand_in, tmp_path)
    yield daemon
    stand_in.control.clear_faults()
    if daemon.process is not None and daemon.process.poll() is None:
        with suppress(ProcessLookupError):
            os.kill(daemon.process.pid, signal.SIGCONT)
        daemon.stop()
