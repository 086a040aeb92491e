"""Clocks of a server's GPUs on a stand-in for NVML: what is measured at them, and that they are always given back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from testbed.stand_in.fixtures import start_stand_in
from testbed.stand_in.program import on_stand_in
from testbed.stand_in_server import Behaviour, stand_in_server
from wastenot.cli.main import run as wastenot
from wastenot.meters.tasks import find_tasks

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def gpus():
    with start_stand_in("h200", gpus=2, wall=True) as running:
        yield running


@pytest.fixture(scope="module")
def server():
    with stand_in_server(Behaviour(ttft_s=0.01, gap_s=0.01)) as running:
        yield running


LENGTHS = ("--output-tokens", "20", "--prompt-tokens", "20")


@pytest.fixture
def points(gpus, server, tmp_path, monkeypatch, capsys):
    """What ``serve-bench`` says of its points, run in this process."""
    gpus.use(monkeypatch)
    monkeypatch.setenv("STAND_IN_WALL", "1")
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path))

    def run(*arguments):
        with on_stand_in():
            returned = wastenot(["serve", "bench", server.url, "--json", *LENGTHS, *arguments])
        out, err = capsys.readouterr()
        assert returned == 0, err
        return json.loads(out)["points"]

    return run


def begin(gpus, server, folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "testbed.stand_in.program", "serve", "bench", server.url, "--json", *LENGTHS, *arguments],
        env=gpus.environment(STAND_IN_WALL="1", WASTENOT_STATE=str(folder), COLUMNS="120"), cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


SETTING = ("--device", "nvidia:0,nvidia:1", "--core", "1500", "--allow-clock-control", "--batch", "2")


def test_both_gpus_are_measured_at_the_clock_and_given_back(gpus, points):
    seen, over = set(), threading.Event()

    def look():
        while not over.wait(0.05):
            seen.update((index, gpus.control.state(index).requested.core_mhz) for index in (0, 1))

    looks = threading.Thread(target=look)
    looks.start()
    try:
        at_auto, at_clock = points(*SETTING, "--steady", "1.5s")
    finally:
        over.set()
        looks.join()
    assert seen == {(0, None), (1, None), (0, 1500.0), (1, 1500.0)}
    assert all(gpus.control.state(index).untouched for index in (0, 1))
    assert (at_auto["setting"]["core_mhz"], at_clock["setting"]["core_mhz"]) == (None, 1500.0)
    for point in (at_auto, at_clock):
        assert point["gpus"] == 2 and point["power_w"] == pytest.approx(2 * 78.0, rel=0.1)


def test_a_busy_gpu_uses_less_energy_a_token_at_a_lower_clock(gpus, points):
    # What runs on the GPU is not what the server answers with: tokens come as fast at any clock, and power is known.
    tasks = find_tasks("gpt3-xl", "sim:h200").tasks
    gpus.control.run_task(min(tasks, key=lambda task: (task.steps[0][0].intensity, task.name)), 0)
    try:
        at_auto, at_clock = points(
            "--device", "nvidia:0", "--core", "1200", "--allow-clock-control", "--batch", "4", "--steady", "2s"
        )  # fmt: skip
    finally:
        gpus.control.stop_task(0)
    assert at_auto["power_w"] > 150.0 and at_clock["power_w"] < 0.95 * at_auto["power_w"]
    for point in (at_auto, at_clock):
        assert point["energy_per_token_j"] == pytest.approx(point["power_w"] / point["tokens_per_s"], rel=0.01)
        assert point["evidence"] == "simulated"
    assert gpus.control.state(0).untouched


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_clocks_are_given_back_when_it_is_ended_in_the_middle(gpus, server, tmp_path, number):
    program = begin(gpus, server, tmp_path, *SETTING, "--steady", "1s", "--study", str(tmp_path / "s.db"))
    until_s = time.monotonic() + 60.0
    while gpus.control.state(0).untouched and time.monotonic() < until_s:
        assert program.poll() is None, program.communicate()
        time.sleep(0.02)
    os.kill(program.pid, number)
    _, err = program.communicate(timeout=60)
    assert program.returncode in (130, -signal.SIGTERM, 143), err
    assert all(gpus.control.state(index).untouched for index in (0, 1))
    assert "measurements are kept" in err


def test_several_gpus_are_to_be_named_and_clocks_to_be_allowed(gpus, server, tmp_path, monkeypatch, capsys):
    gpus.use(monkeypatch)
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path))
    with on_stand_in():
        assert wastenot(["serve", "bench", server.url]) == 2
        assert (
            "--device: this machine has 2 GPUs; name those that serve the model: --device nvidia:0"
            in capsys.readouterr().err
        )
        assert wastenot(["serve", "bench", server.url, "--device", "nvidia:0", "--core", "1500"]) == 2
        assert "clocks cannot be set" in capsys.readouterr().err
    assert all(gpus.control.state(index).untouched for index in (0, 1))
