"""Real pipelines of several processes: PyTorch over gloo on simulated GPUs, and clocks of a stand-in for NVML."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from testbed.applied_programs import Machine
from testbed.pipeline_ranks import environment, free_port
from testbed.pipeline_runs import made_profile, planned
from testbed.stand_in.fixtures import start_stand_in
from wastenot.pipelines.model.schedules import one_forward_one_backward
from wastenot.pipelines.plan.planner import PipelineGoal, frontier_rungs, plan_pipeline, with_rungs
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.run.straggler_client import StragglerClient

ITERATIONS = 3
LATE_S = 0.004  # that a busy machine may keep a clock waiting by


@pytest.mark.slow  # processes that import PyTorch
def test_a_pipeline_over_gloo_runs_at_the_clocks_of_its_plan_in_order(tmp_path):
    """With a rank in the middle, which has neighbours on both sides."""
    pytest.importorskip("torch.distributed.pipelining")
    ranks = 3
    profile = made_profile(ranks, forward_s=0.1, imbalance=0.2, seed=ranks)
    plan = planned(profile, 4, slower=0.1)
    plan.write(tmp_path / "pipeline.json")
    port, out = free_port(), tmp_path / "out"
    command = [sys.executable, "-m", "testbed.pipeline_job", str(tmp_path / "pipeline.json"), "--out", str(out)]
    command += ["--iterations", str(ITERATIONS)]
    processes = [
        subprocess.Popen(command, env=environment(rank, ranks, port, tmp_path), stderr=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    for process in processes:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    graph = PlanGraph(plan)
    for rank in range(ranks):
        seen, steps = json.loads((tmp_path / f"out-{rank}").read_text()), graph.steps(rank)
        assert seen["rank"] == rank and seen["auto_afterwards"]
        status = seen["summary"]["status"]
        assert status["pipeline"]["out_of_order"] == 0 and status["iteration"] == ITERATIONS
        ran = seen["instructions"][len(steps) :]  # clocks of the first were not requested ahead
        assert [each["name"] for each in ran] == (ITERATIONS - 1) * [step.instruction.name for step in steps]
        wanted = (ITERATIONS - 1) * [step.stays[0].setting.core_mhz for step in steps]
        # That a run takes what its plan says is judged on virtual time (test_pipeline_run.py); here others may be slow.
        late = [share_elsewhere(each, mhz) for each, mhz in zip(ran, wanted, strict=True)]
        assert sorted(late)[len(late) // 2] < 0.5, late
        assert min(seen["iterations_s"][1:]) > 0.92 * plan.predicted.time_s


def share_elsewhere(ran, mhz):
    """The part of an instruction's time at other clocks than planned, but for switches that are a little late."""
    bounds = [ran["begin_s"], *(begin_s for _, begin_s in ran["at"][1:]), ran["end_s"]]
    elsewhere = sum(end - begin for (at, _), begin, end in zip(ran["at"], bounds[:-1], bounds[1:], strict=True) if at != mhz)
    return max(elsewhere - LATE_S, 0.0) / (ran["end_s"] - ran["begin_s"])


UNCHANGED = """
import time, torch, torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

class Slow(nn.Module):
    def forward(self, x):
        time.sleep(0.03)
        return self.layer(x)

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
module = Slow()
module.layer = nn.Linear(8, 8)
schedule = Schedule1F1B(PipelineStage(module, rank, ranks, torch.device("cpu")), 4, loss_fn=nn.functional.mse_loss)
for _ in range(6):
    schedule.step(*((torch.randn(4, 8),) if rank == 0 else ()), **({"target": torch.zeros(4, 8)} if rank else {}))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_torchruns_pipelining_needs_no_change_under_the_command(tmp_path):
    pytest.importorskip("torch.distributed.pipelining")
    planned(made_profile(2, forward_s=0.03), 4, slower=0.1).write(tmp_path / "pipeline.json")
    (tmp_path / "train.py").write_text(UNCHANGED)
    command = [
        sys.executable,
        "-m",
        "wastenot",
        "apply",
        "pipeline.json",
        "--device",
        "sim:h200,sim:h200",
        "--out",
        "out.json",
    ]
    command += ["--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    ranks = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    own = {name: value for name, value in environment(0, 2, free_port(), tmp_path).items() if name not in ranks}
    ended = subprocess.run(command, env=own, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    status = json.loads((tmp_path / "out.json").read_text())["status"]
    assert status["pipeline"]["ranks"] == [0, 1] and status["pipeline"]["out_of_order"] == 0
    assert status["iteration"] == 5 and status["pipeline"]["requests"] > 6
    assert "an iteration takes" in ended.stderr


# ---- clocks that must be given back ------------------------------------------------------------------------------

STAND_IN_JOB = """
import sys, time
import wastenot as wn
from wastenot.pipelines.plan.plan_file import read_pipeline_plan
from wastenot.pipelines.plan.rank_steps import PlanGraph
path = sys.argv[1]
steps = PlanGraph(read_pipeline_plan(path)).steps(int(__import__("os").environ["RANK"]))
with wn.apply(path, device=sys.argv[2] if len(sys.argv) > 2 else None) as applied:
    print("training", flush=True)
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s:
        for step in steps:
            with applied.instruction(step.instruction.name, step.instruction.micro_batch):
                time.sleep(step.time_s)
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


@pytest.fixture
def plan(machine):
    profile = made_profile(2, forward_s=0.05, imbalance=0.2)
    object.__setattr__(profile, "device", "NVIDIA H200")
    made = planned(profile, 3, slower=0.2)
    made.write(machine.folder / "pipeline.json")
    (machine.folder / "job.py").write_text(STAND_IN_JOB)
    return made


def wait_for(true):
    end_s = time.monotonic() + 120.0
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.1)


def changed(machine, index):
    return machine.core_mhz(index) is not None


def wait_until_changed(machine, *indices):
    end_s = time.monotonic() + 60.0
    while not all(changed(machine, index) for index in indices):
        assert time.monotonic() < end_s, "no clock was set"
        time.sleep(0.02)


ALTERNATING_JOB = """
import os, sys, time
import wastenot as wn
from wastenot.pipelines.plan.plan_file import read_pipeline_plan
from wastenot.pipelines.plan.rank_steps import PlanGraph
steps = PlanGraph(read_pipeline_plan("pipeline.json")).steps(int(os.environ["RANK"]))
seen = []
with wn.apply("pipeline.json", device="nvidia:0,nvidia:1") as applied:
    for _ in range(int(sys.argv[1])):
        for step in steps:
            with applied.instruction(step.instruction.name, step.instruction.micro_batch):
                time.sleep(step.time_s)
        status = applied.status()
        seen.append("-" if status.proof.default_iterations + status.proof.plan_iterations == 0 else ".D"[status.at_default])
print("".join(seen), [each.text for each in applied.summary.status.events])
"""


@pytest.mark.slow  # a minute of iterations
def test_processes_that_know_nothing_of_each_other_are_at_the_default_clocks_in_the_same_iterations(machine):
    profile = made_profile(2, forward_s=0.05, imbalance=0.2)
    object.__setattr__(profile, "device", "NVIDIA H200")
    planned(profile, 3, slower=0.5).write(machine.folder / "pipeline.json")
    (machine.folder / "job.py").write_text(ALTERNATING_JOB)
    ranks = [
        subprocess.Popen(
            [sys.executable, "job.py", "80"],
            env=machine.environment(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2"),
            cwd=machine.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    said = [process.communicate(timeout=400) for process in ranks]
    if any("not the plan's workload" in out for out, _ in said):
        pytest.skip("the machine is so busy that iterations take much longer than planned")
    # One that suspects its plan, as on a busy machine, is at the default clocks earlier, and until the same iteration.
    blocks = [re.match(r"\.-+\.*(D{10,})\.", out) for out, _ in said]
    assert all(blocks) and len({each.end() for each in blocks}) == 1, said


def launcher(machine, ranks=2):
    """A shell that starts the ranks as torchrun does."""
    one = f"RANK=%d LOCAL_RANK=%d WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 {sys.executable} job.py pipeline.json & "
    return ("bash", "-c", "".join(one % (rank, rank) for rank in range(ranks)) + "wait")


def untouched(machine):
    return all(machine.server.control.state(index).untouched for index in (0, 1)) and not machine.left


def test_clocks_are_set_on_both_ranks_and_given_back_by_one_that_is_killed_and_by_the_command(machine, plan):
    process = machine.start("apply", "pipeline.json", "--device", "nvidia:0,1", "--", *launcher(machine))
    wait_until_changed(machine, 0, 1)
    clocks = {way.clocks[0].core_mhz for way in plan.ways}
    assert {machine.core_mhz(0), machine.core_mhz(1)} <= clocks
    code, out, err = machine.run("apply", "--status")
    assert code == 0 and "nvidia:0, nvidia:1" in out, err
    jobs = [pid for pid in members(process.pid) if rank_of(pid) is not None]
    assert len(jobs) == 2
    killed = rank_of(jobs[1])
    os.kill(jobs[1], signal.SIGKILL)
    machine.wait_for_clock(None, index=killed)
    wait_until_changed(machine, 1 - killed)  # now and then it compares with the default clocks
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    assert untouched(machine)


@pytest.mark.slow  # 40 iterations until the plan's clocks are set
def test_ranks_under_a_straggler_server_compare_and_give_their_clocks_back_when_it_and_one_of_them_are_killed(machine, plan):
    profile = made_profile(2, forward_s=0.02, imbalance=0.2)
    object.__setattr__(profile, "device", "NVIDIA H200")
    made = plan_pipeline(profile, one_forward_one_backward(2, 3), goal=PipelineGoal(max_slowdown=0.5))
    with_rungs(made, frontier_rungs(made, 4)).plan.write(machine.folder / "pipeline.json")
    at = str(machine.sockets / "s")
    server = machine.start("pipeline", "straggler", "pipeline.json", "--replicas", "1", "--at", at)
    wait_for(lambda: os.path.exists(at))
    process = machine.start(
        "apply", "pipeline.json", "--device", "nvidia:0,1", "--", *launcher(machine), WASTENOT_STRAGGLER=at
    )
    wait_for(lambda: (machine.status() or {"proof": {"default_iterations": 0}})["proof"]["default_iterations"] > 0)
    status = StragglerClient(at).status()
    assert status["replicas"][0]["ranks"] == 2 and status["iteration"] > 40
    wait_until_changed(machine, 0, 1)
    server.kill()
    jobs = [pid for pid in members(process.pid) if rank_of(pid) is not None]
    killed = rank_of(jobs[1])
    os.kill(jobs[1], signal.SIGKILL)
    machine.wait_for_clock(None, index=killed)
    wait_until_changed(machine, 1 - killed)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    assert untouched(machine)


def test_a_rank_of_its_own_that_is_killed_leaves_a_journal_and_reset_restores_it(machine, plan):
    environment = machine.environment(RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")
    process = subprocess.Popen(
        [sys.executable, "job.py", "pipeline.json", "nvidia:0,nvidia:1"], env=environment, cwd=machine.folder
    )
    wait_until_changed(machine, 1)
    assert not changed(machine, 0)
    process.kill()
    process.wait()
    assert machine.left
    assert machine.run("device", "reset")[0] == 0
    assert untouched(machine)


def members(group):
    """Processes of a group."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            if os.getpgid(int(entry)) == group:
                found.append(int(entry))
    return found


def rank_of(pid):
    """The local rank of a job; None for other processes."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        found = [each.partition(b"=")[2] for each in file.read().split(b"\0") if each.startswith(b"LOCAL_RANK=")]
    return int(found[0]) if found else None
