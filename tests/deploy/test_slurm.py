"""The scripts of deploy/slurm under a real slurmctld, slurmd and munged, with wastenotd and the stand-in for NVML."""

import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.applied_programs import PLANNED_MHZ, Machine, make_plan
from testbed.daemon_process import Daemon, until
from testbed.slurm import PROGRAMS, Slurm
from testbed.stand_in.fixtures import start_stand_in

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
TRAINING = str(Path(__file__).parents[2] / "testbed" / "training_job.py")
NOBODY = "heartbeat_s = 5.0\n"  # without a rule of a job, nobody may set anything


@dataclass
class Cluster:
    """A cluster of one node, and what its user needs."""

    slurm: Slurm
    machine: Machine
    variables: dict[str, str]

    @property
    def folder(self):
        return self.slurm.folder

    def srun(self, *arguments):
        """What a step says, which succeeds; and afterwards nothing is left of its job."""
        done = self.slurm.run("srun", "--gres=gpu:1", *arguments, **self.variables)
        assert done.returncode == 0, done.stderr + self.slurm.said()
        assert self.is_as_before()
        return done.stdout

    def is_as_before(self):
        state, folder = self.machine.server.control.state, self.folder
        rests = (folder / "jobs", folder / "state" / "policy.d")
        return until(
            lambda: state(0).untouched and state(1).untouched and not any(each for rest in rests for each in rest.glob("*"))
        )

    def summary(self):
        """Of the last job."""
        found = max(self.folder.glob("wastenot-*.json"), key=lambda path: path.stat().st_mtime_ns)
        return json.loads(found.read_text())


@pytest.fixture(scope="module")
def cluster():
    """A cluster, the machine's GPUs, wastenotd, and a plan; its user is root, whose programs go through wastenotd here."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    folder = Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))
    with start_stand_in("h200", gpus=2, wall=True) as server:
        machine, daemon = Machine(server, folder), Daemon(server, folder)
        make_plan(folder, server)
        (folder / "plans").mkdir()
        shutil.copy(folder / "plan.json", folder / "plans" / "default.json")
        binaries = folder / "bin"
        binaries.mkdir()
        daemon.start(NOBODY)
        own = machine.environment(WASTENOTD_SOCKET=str(daemon.socket))
        needed = {name: own[name] for name in own.keys() - os.environ.keys() | {"PYTHONPATH", "STAND_IN_NVML"}}
        _program(binaries / "wastenot", f'exec {sys.executable} -m testbed.stand_in.program "$@"')
        _program(binaries / "systemctl", f'echo "$@" >>{folder}/told; kill -HUP {daemon.process.pid}')
        places = {"WASTENOT_JOBS": str(folder / "jobs"), "WASTENOT_PLANS": str(folder / "plans")}
        slurm = Slurm(folder, needed | places, binaries)
        try:
            yield Cluster(slurm, machine, needed)
        finally:
            slurm.close()
            daemon.stop()
            machine.end()
    shutil.rmtree(folder)


def _program(path, line):
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


SHOW = ("sh", "-c", "echo applied by ${WASTENOT_APPLY:-nobody}")


def test_a_job_that_does_not_ask_is_left_alone(cluster):
    assert cluster.srun(*SHOW) == "applied by nobody\n"
    assert cluster.srun("--comment=for wastenot = llama", *SHOW) == "applied by nobody\n"
    assert cluster.srun("--comment=wastenot=$(touch x)", *SHOW) == "applied by nobody\n"
    assert not list(cluster.folder.glob("wastenot-*"))


@pytest.mark.slow  # it imports PyTorch
def test_an_unmodified_job_runs_at_the_plan_that_it_asked_for(cluster):
    asked = f"--comment=nightly run, wastenot={cluster.folder}/plan.json"
    job = cluster.slurm.start(
        "srun", "--quiet", "--gres=gpu:1", asked, sys.executable, TRAINING, "0.04", OMP_NUM_THREADS="1", **cluster.variables
    )
    try:
        assert until(lambda: cluster.machine.core_mhz() == PLANNED_MHZ or job.poll() is not None, 200.0)
        assert cluster.machine.core_mhz() == PLANNED_MHZ and cluster.machine.server.control.state(1).untouched
        cluster.machine.wait_for_status(lambda status: status["iteration"] > 12)
    finally:
        cluster.machine.enough()
        said = job.communicate(timeout=60)[0]
        (cluster.folder / "enough").unlink()
    assert job.returncode == 0 and said.startswith("training True\n"), said
    summary = cluster.summary()
    assert summary["ended"] == "job ended" and summary["status"]["iteration"] > 12
    assert cluster.is_as_before()


def test_the_tasks_of_a_step_share_a_session_and_a_constraint_asks_for_the_default_plan(cluster):
    first, second = cluster.srun("--ntasks=2", "--constraint=wastenot", *SHOW).splitlines()
    assert first == second and first.endswith(".sock")
    assert cluster.summary()["status"]["plan"].endswith("plans/default.json")


def test_the_steps_of_a_batch_script_share_its_session(cluster):
    script = cluster.folder / "job.sh"
    script.write_text("#!/bin/sh\necho applied by $WASTENOT_APPLY\nsrun " + " ".join(SHOW[:2]) + f" '{SHOW[2]}'\n")
    out = cluster.folder / "out"
    batch = ("sbatch", "--wait", "--gres=gpu:2", "--comment=wastenot=default", f"--output={out}", str(script))
    assert cluster.slurm.run(*batch, **cluster.variables).returncode == 0
    first, second = out.read_text().splitlines()
    assert first == second and first.endswith(".sock") and cluster.is_as_before()


def test_gpu_freq_is_refused_because_it_would_reset_the_clocks(cluster):
    said = cluster.srun("--comment=wastenot=default", "--gpu-freq=low", *SHOW)
    assert "wastenot: this task runs without its plan: --gpu-freq would reset" in said and "applied by nobody" in said


def test_a_job_runs_without_a_plan_that_is_not_there_and_says_why(cluster):
    said = cluster.srun("--comment=wastenot=absent", *SHOW)
    assert "this task runs without its plan: " in said and "absent.json" in said and "applied by nobody" in said


def test_a_job_that_is_cancelled_leaves_nothing(cluster):
    program = (sys.executable, "-m", "testbed.stand_in.job", str(cluster.folder / "plan.json"))
    job = cluster.slurm.start("srun", "--gres=gpu:1", "--comment=wastenot=default", *program, **cluster.variables)
    assert until(lambda: cluster.machine.core_mhz() == PLANNED_MHZ or job.poll() is not None, 200.0)
    assert job.poll() is None and cluster.machine.core_mhz() == PLANNED_MHZ
    cluster.slurm.run("scancel", "--user=root")
    job.communicate(timeout=60)
    assert cluster.is_as_before()
