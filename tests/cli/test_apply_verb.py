"""``wastenot apply`` on simulated GPUs, which run the plan's own workload; real programs are in tests/programs."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

import wastenot as wn
from wastenot.control.places import runtime_folder
from wastenot.devices.simulated.basis import preset_names

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """Plans of one setting by preset, made when first asked for."""
    folder, made = tmp_path_factory.mktemp("plans"), {}

    def plan_of(preset):
        if preset not in made:
            device = wn.open_device(f"sim:{preset}")
            supported = device.clocks.supported_clocks()
            clocks = supported[max(supported)]
            near = [min(clocks, key=lambda clock, part=part: abs(clock - part * max(clocks))) for part in (0.65, 0.75, 0.85)]
            study, plan = folder / f"{preset}.db", folder / f"{preset}.json"
            wn.sweep("gpt3-small", device=device, study=study, granularity="iteration", clocks=wn.Grid(core_mhz=near))
            wn.plan(study, max_slowdown=0.2, granularity="iteration", as_measured=True).write(plan)
            made[preset] = str(plan)
        return made[preset]

    return plan_of


# A card whose clocks follow the plan's at once, one that regulates, and one of another vendor.
QUICK = ("h200", "mi300x", "v100")


@pytest.mark.parametrize(
    "preset", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in preset_names() if name not in QUICK)]
)
def test_on_every_preset(wastenot, plans, preset):
    # As long as a run is by itself only on the slowest card: 600 iterations prove a saving on the others.
    enough = () if preset == "v100" else ("--iterations", "600")
    ran = wastenot("apply", plans(preset), "--out", "summary.json", "--json", *enough)
    assert ran.code == 0, ran.err
    summary = json.loads(ran.out)
    assert json.loads((wastenot.folder / "summary.json").read_text()) == summary
    status = summary["status"]
    assert summary["ended"] == "job ended" and status["origin"] == "simulated"
    assert status["gpus"][0]["device"] == f"sim:{preset}" and status["gpus"][0]["target_core_mhz"] is None
    saved = status["proof"]["energy_change"]
    assert saved["low"] <= saved["value"] <= saved["high"] and saved["low"] < 0.0
    assert saved["value"] == pytest.approx(status["predicted_energy_change"], abs=0.03)
    assert "refused" not in [event["kind"] for event in status["events"]]


def test_what_is_said(wastenot, plans):
    ran = wastenot("apply", plans("h200"), "--iterations", "900")
    assert ran.code == 0 and ran.out == ""
    last = ran.err.splitlines()[-1]
    assert last.startswith("wastenot: saved ") and " %, time " in last.replace("\u00a0", " ") and last.endswith("simulated")


def test_a_dry_run(wastenot, plans):
    ran = wastenot("apply", plans("h200"), "--dry-run", "--iterations", "5")
    assert ran.code == 0 and "nvidia-smi -i 0 -lgc 0," in ran.out and "nvidia-smi -i 0 -rgc" in ran.out
    assert "dry run, nothing is set" in ran.err


def test_bad_input(wastenot, plans):
    plan = plans("h200")
    assert "--iterations: has no effect beside a program" in wastenot.refuse(
        "apply", plan, "--iterations", "5", "--", "true"
    )
    assert "is a plan for sim:h200" in wastenot.refuse("apply", plan, "--device", "sim:v100")
    assert "which plan?" in wastenot.refuse("apply")
    for iterations in ("0", "-5", "1000001", "9" * 20):
        assert f"--iterations {iterations}: must be from 1 to 1,000,000" in wastenot.refuse(
            "apply", plan, "--dry-run", "--iterations", iterations
        )
    assert "there is no kind" in wastenot.refuse("apply", plan, "--device", "tpu:0")


PROGRAM = """
import os, sys, time
from wastenot.control.rank import Rank
rank = Rank(os.environ["WASTENOT_APPLY"])
for _ in range(60):
    for name in ("iteration", "forward"):
        rank.mark(name)
        time.sleep(0.001)
rank.close()
print("trained")
sys.exit(7)
"""


def test_a_program_beside_a_simulated_gpu_is_rehearsed(wastenot, plans):
    (wastenot.folder / "job.py").write_text(PROGRAM)
    job = ("--out", "run.json", "--page", "run.html", "--", sys.executable, "job.py")
    ran = wastenot.process("apply", plans("h200"), *job)
    assert ran.code == 7 and ran.out == "trained\n", ran.err
    status = json.loads((wastenot.folder / "run.json").read_text())["status"]
    seen = status["rehearsal"]
    assert seen["iterations"] == [60] and seen["passes"] == {"forward": 60} and 0.002 < seen["iteration_s"] < 1.0
    assert seen["requests"] >= 2 and seen["missing"] == []
    assert status["proof"]["energy_change"] is status["proof"]["saved_j"] is status["gpus"][0]["energy_j"] is None
    assert {event["kind"] for event in status["events"]} == {"started", "ended"}
    lines = ran.err.splitlines()
    assert lines[0].startswith("wastenot: this was a rehearsal: your program ran here, and nothing of it on sim:h200.")
    assert lines[1].startswith("wastenot: the hooks saw 60 iterations of ") and "; passes: forward 60; " in lines[1]
    page = (wastenot.folder / "run.html").read_text()
    assert "A rehearsal of" in page and "not measured" in page and "What they missed" in page
    dry = wastenot.process("apply", plans("h200"), "--dry-run", "--json", "--", sys.executable, "job.py")
    seen = json.loads(dry.out)["status"]["rehearsal"]
    assert dry.code == 7 and seen["iterations"] == [60] and seen["requests"] == 0


def test_in_real_time_a_second_terminal_sees_it_and_ends_it(wastenot, plans):
    process = subprocess.Popen(
        [sys.executable, "-m", "wastenot", "apply", plans("h200"), "--real-time"], cwd=wastenot.folder, text=True,
        stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    end_s = time.monotonic() + 60.0
    while "no plan is being applied" in wastenot("apply", "--status").err:
        assert time.monotonic() < end_s
        time.sleep(0.05)
    sessions = json.loads(wastenot.process("apply", "--status", "--json").out)["sessions"]
    assert sessions[0]["process"] == process.pid and sessions[0]["gpus"][0]["device"] == "sim:h200"
    assert wastenot("apply", "--stop").out.startswith("stopped")
    assert process.wait(60) == 0
    process.stderr.close()
    assert "no plan is being applied" in wastenot("apply", "--status").err


def test_a_session_that_died_is_forgotten(wastenot):
    runtime_folder().mkdir(mode=0o700)
    (runtime_folder() / "apply-1.sock").touch()
    assert "no plan is being applied" in wastenot("apply", "--status").err


def test_a_folder_that_others_may_enter_is_refused(wastenot, plans):
    runtime_folder().mkdir(mode=0o755)
    runtime_folder().chmod(0o755)
    assert "nobody else can access" in wastenot.refuse("apply", plans("h200"))


def test_sockets_in_a_folder_that_others_may_write_are_not_asked(wastenot):
    runtime_folder().mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(runtime_folder() / "apply-1.sock"))
        listening.listen()
        runtime_folder().chmod(0o777)
        assert "no plan is being applied" in wastenot("apply", "--status").err
