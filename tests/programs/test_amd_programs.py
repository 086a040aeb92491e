"""Real programs under plans on AMD GPUs: a stand-in for ``libamd_smi.so`` under the real ``amdsmi``, in real time.

HIP counts the two GPUs the other way round than AMD SMI and the stand-in do.
"""

import json
import os
import signal
import sys

import pytest

from testbed.applied_programs import Machine, make_plan, wait_until
from testbed.pipeline_runs import made_profile, planned
from testbed.stand_in.fixtures import start_stand_in
from wastenot.devices.amd import driver

JOB = (sys.executable, "-m", "testbed.stand_in.job")
COARSELY = ("--step", "0.02")
PLANNED_MHZ = 1600.0
RANK = """
import os, time
import wastenot as wn
from wastenot.pipelines.plan.plan_file import read_pipeline_plan
from wastenot.pipelines.plan.rank_steps import PlanGraph
steps = PlanGraph(read_pipeline_plan("pipeline.json")).steps(int(os.environ["RANK"]))
with wn.apply("pipeline.json") as applied:
    while not os.path.exists("enough"):
        for step in steps:
            with applied.instruction(step.instruction.name, step.instruction.micro_batch):
                time.sleep(step.time_s)
"""


@pytest.fixture(scope="module")
def server():
    with start_stand_in("mi300x", gpus=2, wall=True) as stand_in:
        yield stand_in


@pytest.fixture
def machine(server, tmp_path):
    server.control.reset()
    machine = Machine(server, tmp_path)
    yield machine
    machine.end()


@pytest.fixture
def plan(machine, monkeypatch):
    """Of one setting for amd:0, which is the stand-in's second GPU."""
    machine.server.use(monkeypatch)
    label = f"AMD Instinct MI300X {driver.unique_id(0)}"
    return str(make_plan(machine.folder, machine.server, device=label, core_mhz=PLANNED_MHZ))


def restored(machine):
    return all(machine.server.control.state(index).untouched for index in (0, 1)) and not machine.left


def test_a_program_runs_at_the_plans_clocks_on_the_card_of_the_plan(machine, plan):
    process = machine.start("apply", plan, "--out", "summary.json", "--", *JOB, plan, "--gpu", "1", "--code", "7", *COARSELY)
    machine.wait_for_clock(PLANNED_MHZ, 1)
    machine.wait_for_status(lambda status: status["proof"]["plan_iterations"] > 5)
    assert machine.core_mhz(0) is None and machine.left
    assert "(AMD Instinct MI300X): core asked for 1600 MHz" in machine.run("apply", "--status")[1]
    machine.enough()
    code, out, err = machine.ended(process)
    assert code == 7 and out == "training\ntrained\n", err
    summary = json.loads((machine.folder / "summary.json").read_text())
    assert summary["ended"] == "job ended" and summary["status"]["gpus"][0]["energy_j"] > 50.0
    assert {call.name for call in machine.server.control.state(1).setters} == {
        "amdsmi_set_gpu_clk_limit",
        "amdsmi_set_gpu_perf_level",
    }
    assert restored(machine)


@pytest.mark.parametrize("both", [False, True])
def test_clocks_are_given_back_whoever_is_killed(machine, plan, both):
    process = machine.start("apply", plan, "--", *JOB, plan, "--gpu", "1", "--linger")
    machine.wait_for_clock(PLANNED_MHZ, 1)
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        [job] = map(int, file.read().split())
    process.kill()
    if both:
        os.kill(job, signal.SIGKILL)
        process.wait()
        assert machine.core_mhz(1) == PLANNED_MHZ and machine.left
        assert machine.run("device", "reset")[0] == 0
    else:
        machine.wait_for_clock(None, 1)
        os.kill(job, signal.SIGKILL)
    wait_until(lambda: restored(machine))


def test_a_pipelines_ranks_run_at_their_clocks(machine):
    profile = made_profile(2, forward_s=0.05, imbalance=0.2)
    object.__setattr__(profile, "device", "AMD Instinct MI300X")
    made = planned(profile, 3, slower=0.2)
    made.write(machine.folder / "pipeline.json")
    (machine.folder / "job.py").write_text(RANK)
    one = f"RANK=%d LOCAL_RANK=%d WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 {sys.executable} job.py & "
    ranks = ("bash", "-c", "".join(one % (rank, rank) for rank in range(2)) + "wait")
    process = machine.start("apply", "pipeline.json", "--device", "amd:0,1", "--out", "summary.json", "--", *ranks)
    wait_until(lambda: machine.core_mhz(0) is not None and machine.core_mhz(1) is not None)
    machine.wait_for_status(lambda status: status["pipeline"]["iteration_s"] is not None)
    machine.enough()
    code, _, err = machine.ended(process)
    assert code == 0 and restored(machine), err
    status = json.loads((machine.folder / "summary.json").read_text())["status"]
    assert status["pipeline"]["ranks"] == [0, 1] and status["pipeline"]["out_of_order"] == 0
    clocks = {way.clocks[0].core_mhz for way in made.ways}
    for index in (0, 1):
        setters = machine.server.control.state(index).setters
        asked = {call.arguments[2] for call in setters if call.name == "amdsmi_set_gpu_clk_limit"}
        assert asked and asked <= clocks and not any(call.error for call in setters)
