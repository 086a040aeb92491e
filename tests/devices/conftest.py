"""Two GPUs of the stand-in for NVML, and the program on them, inside the test's process."""

import types

import pytest

from testbed.stand_in.fixtures import start_stand_in
from wastenot.cli.main import run as run_command


@pytest.fixture(scope="session")
def server():
    with start_stand_in("h200", gpus=2, memory_lock=True) as server:
        yield server


@pytest.fixture
def stand_in(server, monkeypatch, tmp_path):
    server.control.reset()
    server.control.clear_faults()
    server.use(monkeypatch)
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "state"))
    return server


@pytest.fixture
def wastenot(stand_in, tmp_path, monkeypatch, capsys):
    """Runs a verb; returns its exit code and its two streams."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = run_command(list(arguments))
        said = capsys.readouterr()
        return types.SimpleNamespace(returncode=code, stdout=said.out, stderr=said.err)

    return run
