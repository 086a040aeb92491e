"""Servers that the stand-in's own tests share."""

import pytest

from testbed.stand_in.fixtures import start_stand_in
from wastenot.meters.tasks import find_tasks


@pytest.fixture(scope="session")
def virtual_server():
    with start_stand_in("h200", gpus=2) as server:
        yield server


@pytest.fixture(scope="session")
def wall_server():
    with start_stand_in("testbed/toy.toml", wall=True) as server:
        yield server


@pytest.fixture
def stand_in(virtual_server):
    """Two H200, fresh, in virtual time."""
    virtual_server.control.reset()
    return virtual_server


@pytest.fixture
def wall(wall_server):
    """A toy GPU, fresh, in real time."""
    wall_server.control.reset()
    return wall_server


@pytest.fixture
def nvml(stand_in, monkeypatch):
    """``pynvml`` on the H200s, initialised."""
    module = stand_in.use(monkeypatch)
    module.nvmlInit()
    return module


@pytest.fixture
def handle(nvml):
    """The first of them."""
    return nvml.nvmlDeviceGetHandleByIndex(0)


@pytest.fixture(scope="session")
def tasks():
    """Kernels of GPT-3 XL by name."""
    return {task.name: task for task in find_tasks("gpt3-xl", "sim:h200").tasks}


@pytest.fixture(scope="session")
def hot_task(tasks):
    """The one that needs the most arithmetic for each byte: it meets the power limit."""
    return max(tasks.values(), key=lambda task: task.steps[0][0].intensity)


@pytest.fixture(scope="session")
def cool_task(tasks):
    """One that moves bytes, and keeps the power limit."""
    return min(tasks.values(), key=lambda task: (task.steps[0][0].intensity, task.name))
