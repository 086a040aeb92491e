"""``wastenot apply`` with clocks set through ``wastenotd``: the daemon, the command and its program are real processes."""

import json
import os
import signal
import sys

import pytest

from testbed.applied_programs import PLANNED_MHZ, Machine, make_plan
from testbed.daemon_process import Daemon
from testbed.stand_in.fixtures import start_stand_in

PYTHON = sys.executable
RAN = (PYTHON, "-c", "print('ran')")
ALLOWED = f"heartbeat_s = 30\n[[allow]]\nusers = [{os.getuid()}]\n"


@pytest.fixture(scope="module")
def server():
    with start_stand_in("h200", gpus=2, wall=True) as stand_in:
        yield stand_in


class Through(Machine):
    """A machine on which clocks are set through the daemon."""

    def environment(self, **more):
        return super().environment(**{"WASTENOTD_SOCKET": str(self.folder / "run" / "wastenotd.sock")} | more)


@pytest.fixture
def machine(server, tmp_path):
    server.control.reset()
    machine = Through(server, tmp_path)
    yield machine
    machine.end()


@pytest.fixture
def daemon(server, tmp_path, machine):
    daemon = Daemon(server, tmp_path)
    yield daemon
    if daemon.process is not None and daemon.process.poll() is None:
        daemon.stop()


@pytest.fixture
def job(machine):
    plan = str(make_plan(machine.folder, machine.server))
    return ("apply", plan, "--", PYTHON, "-m", "testbed.stand_in.job", plan)


def test_a_job_runs_at_the_plans_clocks_and_the_daemon_gives_them_back(machine, daemon, job):
    daemon.start(ALLOWED)
    process = machine.start("apply", job[1], "--out", "summary.json", *job[2:], "--code", "7")
    machine.wait_for_clock(PLANNED_MHZ)
    reached = machine.status()["iteration"]
    machine.wait_for_status(lambda status: status["iteration"] > reached + 5)
    machine.enough()
    code, out, err = machine.ended(process)
    assert code == 7 and out == "training\ntrained\n", err
    summary = json.loads((machine.folder / "summary.json").read_text())
    assert summary["ended"] == "job ended" and summary["status"]["iteration"] > 10
    assert machine.server.control.state(0).untouched and not machine.left
    said = daemon.said()
    assert f"process={process.pid}" in said and f"core {PLANNED_MHZ:.0f}" in said and "end of lease" in said


def test_the_daemon_restores_where_command_and_program_are_killed(machine, daemon, job):
    daemon.start(ALLOWED)
    process = machine.start(*job)
    machine.wait_for_clock(PLANNED_MHZ)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    machine.wait_for_clock(None)  # nobody asks for it


def test_the_program_runs_on_where_the_daemon_stops(machine, daemon, job):
    daemon.start(ALLOWED)
    process = machine.start(*job)
    machine.wait_for_clock(PLANNED_MHZ)
    daemon.stop()
    assert machine.server.control.state(0).untouched
    machine.enough()
    code, out, err = machine.ended(process)
    assert code == 0 and out == "training\ntrained\n", err
    assert machine.server.control.state(0).untouched


@pytest.mark.parametrize(("policy", "why"), [
    (None, "no wastenotd listens"),
    ("[[allow]]\nusers = [4711]\n", "the policy of wastenotd does not let this user"),
    (ALLOWED + "gpus = [1]\n", "the policy of wastenotd does not let this user"),
])  # fmt: skip
def test_what_the_policy_does_not_allow_is_said_in_one_line_and_sets_nothing(machine, daemon, job, policy, why):
    if policy is not None:
        daemon.start(policy)
    code, out, err = machine.run("apply", job[1], "--", *RAN)
    assert code in (1, 2) and out == "" and why in err and err.count("\n") == 1, (code, out, err)
    assert machine.server.control.state(0).untouched and not machine.left
