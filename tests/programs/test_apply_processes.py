"""``wastenot apply`` with real programs, signals and kills, on a stand-in for NVML that lives in real time."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from testbed.applied_programs import PLANNED_MHZ, Machine, make_plan, wait_until
from testbed.stand_in.fixtures import start_stand_in
from wastenot.programs import startup

PYTHON = sys.executable
JOB = (PYTHON, "-m", "testbed.stand_in.job")
COARSELY = ("--step", "0.02")  # where many iterations are waited for
TRAINING = str(Path(__file__).parents[2] / "testbed" / "training_job.py")
DDP = str(Path(TRAINING).with_name("ddp_job.py"))
SLEEP = (PYTHON, "-c", "import time; print('slept', flush=True); time.sleep(2)")


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


@pytest.fixture
def plan(machine):
    return str(make_plan(machine.folder, machine.server))


def restored(machine):
    """Nothing is changed any more, and nothing is left to undo."""
    return machine.server.control.state(0).untouched and machine.server.control.state(1).untouched and not machine.left


def test_a_job_runs_at_the_plans_clocks_and_its_exit_code_is_ours(machine, plan):
    process = machine.start("apply", plan, "--out", "summary.json", "--", *JOB, plan, "--code", "7", *COARSELY)
    machine.wait_for_clock(PLANNED_MHZ)
    assert machine.left
    machine.wait_for_status(lambda status: status["proof"]["plan_iterations"] > 5)
    machine.enough()
    code, out, err = machine.ended(process)
    assert code == 7 and out == "training\ntrained\n", err
    assert restored(machine)
    summary = json.loads((machine.folder / "summary.json").read_text())
    status = summary["status"]
    assert summary["schema"] == "wastenot.apply/1" and summary["ended"] == "job ended" and summary["exit_code"] == 7
    assert status["iteration"] > 15 and status["proof"]["plan_iterations"] > 5 and status["gpus"][0]["energy_j"] > 50.0
    assert [event["kind"] for event in status["events"]] == ["started", "ended"]
    assert " iterations, " in err and "summary.json: summary written" in err


def test_a_dry_run_shows_what_would_be_set_and_sets_nothing(machine, plan):
    process = machine.start("apply", plan, "--dry-run", "--", *JOB, plan, "--iterations", "10", *COARSELY)
    code, out, err = machine.ended(process)
    assert code == 0, err
    uuid = machine.server.control.state(0).uuid
    assert f"nvidia-smi -i {uuid} -lgc 0,1605\n" in out and f"nvidia-smi -i {uuid} -rgc\n" in out
    assert "dry run, nothing is set" in err and restored(machine)
    assert not machine.server.control.state(0).setters
    assert machine.run("apply", plan, "--dry-run")[0] == 0


def test_a_program_that_is_killed_gives_the_clocks_back(machine, plan):
    process = machine.start("apply", plan, "--", *JOB, plan)
    machine.wait_for_clock(PLANNED_MHZ)
    [job] = children(process.pid)
    os.kill(job, signal.SIGKILL)
    code, _, _ = machine.ended(process)
    assert code == 128 + signal.SIGKILL and restored(machine)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_signals_are_passed_on_and_the_clocks_given_back(machine, plan, number):
    process = machine.start("apply", plan, "--", *JOB, plan)
    machine.wait_for_clock(PLANNED_MHZ)
    process.send_signal(number)
    code, _, _ = machine.ended(process)
    assert code == (1 if number == signal.SIGINT else 128 + number) or code == 128 + number
    assert restored(machine)


def test_where_apply_itself_is_killed_the_program_has_the_clocks_reset_and_runs_on(machine, plan):
    process = machine.start("apply", plan, "--", *JOB, plan, "--linger")
    machine.wait_for_clock(PLANNED_MHZ)
    [job] = children(process.pid)
    process.kill()
    process.wait()
    machine.wait_for_clock(None)
    machine.enough()
    assert process.stdout.readline() == "training\n" and process.stdout.readline() == "trained\n"
    assert is_running(job)
    os.kill(job, signal.SIGKILL)
    wait_until(lambda: restored(machine))
    assert process.stderr.read().count("has ended early; this process runs on without the plan") == 1


def test_where_both_are_killed_the_next_command_restores(machine, plan):
    process = machine.start("apply", plan, "--", *JOB, plan)
    machine.wait_for_clock(PLANNED_MHZ)
    [job] = children(process.pid)
    for each in (process.pid, job):
        os.kill(each, signal.SIGKILL)
    process.wait()
    assert machine.core_mhz() == PLANNED_MHZ and machine.left
    code, _, err = machine.run("device", "reset")
    assert code == 0 and "is dead" in err and restored(machine)


def test_a_second_terminal_sees_it_cannot_have_its_gpu_and_ends_it(machine, plan):
    assert "no plan is being applied" in machine.run("apply", "--status")[2]
    process = machine.start("apply", plan, "--", *JOB, plan)
    machine.wait_for_clock(PLANNED_MHZ)
    code, out, err = machine.run("apply", "--status")
    assert code == 0 and "NVIDIA H200" in out and f"process {process.pid}" in out and "iteration" in out, err
    [status] = json.loads(machine.run("apply", "--status", "--json")[1])["sessions"]
    assert status["schema"] == "wastenot.apply-status/1" and status["process"] == process.pid
    code, out, err = machine.run("apply", plan, "--", PYTHON, "-c", "print('ran')")
    assert code == 1 and out == "" and f"process {process.pid}" in err and err.count("\n") == 1
    assert process.poll() is None and machine.left
    code, out, err = machine.run("apply", "--stop")
    assert code == 0 and out.startswith("stopped"), err
    machine.wait_for_clock(None)
    assert process.poll() is None, "the program runs on"
    machine.enough()
    code, out, err = machine.ended(process)
    assert code == 0 and out.endswith("trained\n") and restored(machine)


def test_a_program_without_iterations_keeps_a_plan_of_one_setting_and_proves_nothing(tmp_path):
    """On a card that reports no memory traffic, by which it would be guarded otherwise."""
    with start_stand_in("rtx-3080-ti", wall=True) as older:
        machine = Machine(older, tmp_path)
        card = f"NVIDIA GeForce RTX 3080 Ti {older.control.state(0).uuid}"
        plan = str(make_plan(tmp_path, older, device=card))
        process = machine.start("apply", plan, "--patience", "0.5s", "--json", "--", *SLEEP)
        machine.wait_for_clock(PLANNED_MHZ)
        code, out, err = machine.ended(process)
        assert older.control.state(0).untouched and not machine.left
        machine.end()
    assert code == 0 and "no iterations were seen" in err and "slept\n" in err
    status = json.loads(out)["status"]  # which has stdout to itself
    assert status["proof"]["energy_change"] is None and status["iteration"] is None
    assert [event["kind"] for event in status["events"]] == ["started", "note", "ended"]
    assert "reports no memory traffic" in status["events"][1]["text"]


@pytest.mark.parametrize(("program", "code", "why"), [
    ("no-such-program", 127, "there is no such command"),
    ("./not-executable", 126, "not executable"),
    ("./broken", 126, "Exec format error"),
])  # fmt: skip
def test_a_command_that_cannot_be_run_sets_nothing(machine, plan, program, code, why):
    (machine.folder / "not-executable").write_text("#!/bin/sh\n")
    (machine.folder / "broken").write_bytes(b"\x7fELF nonsense")
    (machine.folder / "broken").chmod(0o755)
    got, _, err = machine.run("apply", plan, "--", program)
    assert got == code and why in err and err.count("\n") == 1
    assert restored(machine) and not machine.server.control.state(0).setters


def test_not_allowed_to_set_clocks(machine, plan):
    code, out, err = machine.run("apply", plan, "--", PYTHON, "-c", "print('ran')", WASTENOT_READ_ONLY="1")
    assert code == 2 and out == "" and "WASTENOT_READ_ONLY" in err and "--dry-run" in err and err.count("\n") == 1
    assert restored(machine)


def test_plans_that_do_not_fit(machine, plan):
    ran = ("--", PYTHON, "-c", "print('ran')")

    def refused(*arguments):
        code, out, err = machine.run("apply", *arguments)
        assert code == 2 and out == "" and err.count("\n") == 1, (code, out, err)
        return err

    whole = json.loads((machine.folder / "plan.json").read_text())
    (machine.folder / "edited.json").write_text(json.dumps(whole | {"workload": "other"}))
    assert "the file was edited" in refused("edited.json", *ran)
    make_plan(machine.folder, machine.server, "v100.json", device="Tesla V100-SXM2-16GB")
    why = refused("v100.json", "--device", "nvidia:0", *ran)
    assert "is a plan for Tesla V100-SXM2-16GB, and nvidia:0 is NVIDIA H200" in why
    assert "there is no such GPU" in refused(plan, "--device", "nvidia:0,7", *ran)
    assert "given twice" in refused(plan, "--device", "nvidia:0,0", *ran)
    assert "what is to run" in refused(plan)
    assert "cannot be read" in refused("nowhere.json", *ran)
    assert restored(machine)


def test_in_a_program_of_ones_own(machine, plan):
    process = machine.start_job(plan, "--out", "summary.json", *COARSELY)
    machine.wait_for_clock(PLANNED_MHZ)
    assert machine.status()["process"] == process.pid
    machine.wait_for_status(lambda status: status["iteration"] > 15)
    machine.enough()
    code, _, err = machine.ended(process)
    assert code == 0 and restored(machine), err
    assert json.loads((machine.folder / "summary.json").read_text())["status"]["iteration"] > 15


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_program_of_ones_own_that_is_ended_gives_the_clocks_back(machine, plan, number):
    process = machine.start_job(plan)
    machine.wait_for_clock(PLANNED_MHZ)
    process.send_signal(number)
    code, _, _ = machine.ended(process)
    assert code != 0 and restored(machine)


def test_ranks_of_a_machine_share_one_session(machine, plan):
    of_job = {"LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29501", "TORCHELASTIC_RUN_ID": "a-job"}
    ranks = [
        machine.start_job(plan, *COARSELY, "--gpu", str(rank), LOCAL_RANK=str(rank), **of_job) for rank in (1, 0)
    ]  # fmt: skip
    try:
        for index in (0, 1):
            machine.wait_for_clock(PLANNED_MHZ, index)
        [status] = json.loads(machine.run("apply", "--status", "--json")[1])["sessions"]
        assert [gpu["device"] for gpu in status["gpus"]] == ["nvidia:0", "nvidia:1"]
        assert status["process"] == ranks[1].pid
        assert [process.stdout.readline() for process in ranks] == ["training\n"] * 2  # the other one has come, too
    finally:
        machine.enough()
        ended = [machine.ended(process) for process in ranks]
    assert [code for code, _, _ in ended] == [0, 0] and restored(machine), ended


def test_another_workload_is_refused_and_runs_on(machine):
    plan = str(make_plan(machine.folder, machine.server, slower=20.0))
    process = machine.start("apply", plan, "--out", "summary.json", "--", *JOB, plan, *COARSELY)
    machine.wait_for_status(lambda status: status["events"][-1]["kind"] == "refused")
    machine.enough()
    code, out, err = machine.ended(process)
    assert code == 0 and out == "training\ntrained\n" and restored(machine), err
    summary = json.loads((machine.folder / "summary.json").read_text())
    [why] = [event["text"] for event in summary["status"]["events"] if event["kind"] == "refused"]
    assert summary["ended"] == "refused" and "not the plan's workload" in why
    assert not machine.server.control.state(0).setters


@pytest.mark.slow
def test_a_python_without_wastenot_is_instrumented_when_it_imports_pytorch(machine, plan):
    """A stub stands for PyTorch; ``TestTraining`` has the real one."""
    theirs = machine.folder / "theirs"
    (theirs / "torch" / "optim").mkdir(parents=True)
    (theirs / "wastenot.py").write_text("raise ImportError('not installed here')\n")
    (theirs / "sitecustomize.py").write_text("print('their own')\n")
    (theirs / "torch" / "__init__.py").write_text("class compiler:\n    is_compiling = bool\n")
    (theirs / "torch" / "optim" / "optimizer.py").write_text(
        "hooks = []\nregister_optimizer_step_pre_hook = register_optimizer_step_post_hook = hooks.append\n"
    )
    program = "from torch.optim import optimizer; print([hook.__name__ for hook in optimizer.hooks])"
    hidden = ("env", f"PYTHONPATH={Path(startup.__file__).parent}:{theirs}", PYTHON, "-c", program)
    code, out, err = machine.ended(machine.start("apply", plan, "--", *hidden))
    assert code == 0 and restored(machine) and "without the plan" not in err, err
    assert out == "their own\n['_step_begins', '_any_step_ends']\n"


class TestTraining:
    """A PyTorch program that knows nothing of wastenot, on the CPU."""

    STEP_S = 0.03  # its passes as in the plan

    def finished(self, machine, process):
        code, out, err = machine.ended(process)
        assert code == 0 and restored(machine), err
        return out, json.loads((machine.folder / "summary.json").read_text())

    @pytest.fixture
    def plan(self, machine):
        return str(make_plan(machine.folder, machine.server, slower=self.STEP_S / 0.0119))

    @pytest.mark.slow  # three processes that import PyTorch; each of the parts is tested without
    def test_so_they_are_in_each_process_of_torchrun(self, machine, plan):
        torchrun = (PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", TRAINING, str(self.STEP_S))
        process = machine.start("apply", plan, "--out", "summary.json", "--", *torchrun, OMP_NUM_THREADS="1")
        machine.wait_for_clock(PLANNED_MHZ)
        machine.wait_for_status(lambda status: status["iteration"] > 12)  # of the rank on the only GPU of the plan
        machine.enough()
        out, summary = self.finished(machine, process)
        assert out.count("training True") == 2 and summary["ended"] == "job ended", (out, summary["status"]["events"])

    @pytest.mark.slow  # it imports PyTorch; its hooks are tested without (test_hooks.py)
    def test_its_iterations_are_followed_also_by_a_python_without_wastenot(self, machine, plan, tmp_path):
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        (theirs / "wastenot.py").write_text("raise ImportError('not installed here')\n")
        (theirs / "sitecustomize.py").write_text("print('their own')\n")
        (theirs / "testbed").symlink_to(Path(TRAINING).parent)
        hidden = ("env", f"PYTHONPATH={Path(startup.__file__).parent}:{theirs}", "OMP_NUM_THREADS=1", PYTHON)
        process = machine.start("apply", plan, "--out", "summary.json", "--", *hidden, TRAINING, str(self.STEP_S))
        machine.wait_for_clock(PLANNED_MHZ)
        for marker in ("forward", "backward"):
            machine.wait_for_status(lambda status, marker=marker: status["iteration"] > 15 and status["marker"] == marker)
        machine.enough()
        out, summary = self.finished(machine, process)
        steps = int(out.split()[-1])
        assert out.startswith("their own\n") and summary["ended"] == "job ended"
        # The first is not seen, as its model is only found at its end; they are counted from 0.
        assert summary["status"]["iteration"] == steps - 2

    @pytest.mark.slow  # two processes that import PyTorch; what is decided is tested without (test_slack.py)
    def test_the_faster_gpu_of_a_ddp_job_runs_at_lower_clocks_than_the_one_it_waits_for(self, machine, plan):
        torchrun = (PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", DDP, str(self.STEP_S))
        process = machine.start("apply", plan, "--all", "--out", "summary.json", "--", *torchrun, OMP_NUM_THREADS="1")
        machine.wait_for_status(lambda status: any("wait for the slowest" in each["text"] for each in status["events"]))
        machine.wait_for_clock(PLANNED_MHZ, 0)
        assert machine.core_mhz(1) < PLANNED_MHZ
        machine.enough()
        _, summary = self.finished(machine, process)
        [lowered, *_] = [each["text"] for each in summary["status"]["events"] if "wait for the slowest" in each["text"]]
        assert "GPU 1 by" in lowered and "GPU 0" not in lowered


def children(process):
    with open(f"/proc/{process}/task/{process}/children") as file:
        return [int(each) for each in file.read().split()]


def is_running(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
