"""Two GPUs of the stand-in for NVML, and controllers of servers that run on them."""

import pytest

from testbed.live_control import Controller
from testbed.stand_in.fixtures import start_stand_in


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
    return gpus


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
