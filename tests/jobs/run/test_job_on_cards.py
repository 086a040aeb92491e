"""A job on NVIDIA GPUs, as a stand-in for NVML shows them: whose energy counts, and whose limits are set and given back."""

from __future__ import annotations

import subprocess
import sys

import pytest

from testbed.applied_programs import Machine
from testbed.stand_in.fixtures import start_stand_in
from wastenot.core.setting import AUTO
from wastenot.jobs.tables.store import JobStore
from wastenot.study.store import open_study

PROGRAM = """
import sys, time
import wastenot as wn
with wn.job(
    "nightly", study="jobs.db", batch_sizes=[16, 32], default=32, target=0.9, device=sys.argv[1].split("+"),
    settings=sys.argv[2],
) as run:
    for metric in (0.1, 0.2, 0.95):
        time.sleep(0.4)
        if metric == 0.2:
            print("training", flush=True)
            if sys.argv[3:] == ["wait"]:
                time.sleep(60)
        run.epoch(metric)
"""


@pytest.fixture(scope="module")
def server():
    with start_stand_in("h200", gpus=2, wall=True) as stand_in:
        yield stand_in


@pytest.fixture
def machine(server, tmp_path):
    server.control.reset()
    machine = Machine(server, tmp_path)
    yield machine
    machine.end()


def start(machine, *arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], env=machine.environment(**more), cwd=machine.folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def limits_asked(machine, index=0):
    calls = machine.server.control.state(index).setters
    return [call.arguments[0] / 1000 for call in calls if call.name == "nvmlDeviceSetPowerManagementLimit"]


def read(machine):
    return JobStore(open_study(machine.folder / "jobs.db")).read("nightly")


def test_limits_of_all_gpus_are_set_and_given_back(machine):
    program = start(machine, "nvidia:0+nvidia:1", "limits")
    _, said = program.communicate(timeout=60)
    assert program.returncode == 0, said
    stored = read(machine)
    (run,) = stored.runs
    assert run.outcome == "reached" and run.energy_j > 0.0 and stored.terms.max_power_w == 1400.0
    assert run.device == f"2 × {run.device.removeprefix('2 × ')}" and "GPU-" not in run.device  # any two cards of the model
    assert run.setting in stored.terms.settings
    for index in (0, 1):
        state = machine.server.control.state(index)
        assert run.setting.power_limit_w in limits_asked(machine, index)
        assert state.power_limit_w == state.default_power_limit_w


@pytest.mark.slow
def test_nothing_is_set_where_nothing_is_to_be_set(machine):
    for settings, more in (("none", {}), ("limits", {"WASTENOT_READ_ONLY": "1"})):
        program = start(machine, "nvidia:0", settings, **more)
        _, said = program.communicate(timeout=60)
        assert program.returncode == 0, said
        assert ("power limits are left unchanged" in said) == (settings == "limits")
        assert machine.server.control.state().setters == ()
    stored = read(machine)
    assert stored.terms.settings == (AUTO,) and stored.terms.max_power_w == 700.0
    assert all(run.energy_j > 10.0 and run.setting == AUTO for run in stored.runs)
    assert stored.speeds and all(speed.setting == AUTO and speed.power_w > 10.0 for speed in stored.speeds)


@pytest.mark.slow
def test_a_killed_job_leaves_no_limit_behind(machine):
    program = start(machine, "nvidia:0", "limits", "wait")
    assert program.stdout.readline() == "training\n", program.stderr.read()
    state = machine.server.control.state()
    asked = limits_asked(machine)
    program.kill()
    program.wait()
    again = start(machine, "nvidia:0", "none")
    _, said = again.communicate(timeout=60)
    assert again.returncode == 0, said
    assert asked == [] or state.power_limit_w == asked[-1]
    assert machine.server.control.state().power_limit_w == state.default_power_limit_w
    assert [run.outcome for run in read(machine).runs] == ["lost", "reached"]
