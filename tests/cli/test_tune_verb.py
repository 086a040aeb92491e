"""``wastenot tune``: a simulated job, what is written, a real program on the stand-in's GPU, and bad input."""

import json
import sys
import threading
import time
from contextlib import suppress

import pytest

from testbed.stand_in.fixtures import start_stand_in
from wastenot.cli.main import run as run_command
from wastenot.control.places import socket_paths
from wastenot.control.wire import ask
from wastenot.planning.plan_file import read_plan

SIMULATED = ["tune", "--device", "sim:rtx-a4000", "--workload", "gpt3-small", "--max-slowdown", "5%", "--quiet"]

PROGRAM = """
import os, sys, time
from wastenot.control.rank import Rank
rank = Rank(os.environ["WASTENOT_APPLY"])
rank.mark("iteration")
ends_s = time.monotonic() + 300.0
while time.monotonic() < ends_s and not os.path.exists(sys.argv[1]):
    rank.mark("iteration")
    time.sleep(0.05)
rank.close()
sys.exit(7)
"""


def test_a_simulated_job_is_tuned_and_the_plan_put_to_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command([*SIMULATED, "--out", "plan.json", "--summary", "run.json", "--json"]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert document["schema"] == "wastenot.tune/1" and document["run"]["schema"] == "wastenot.apply/1"
    tuning = document["run"]["status"]["tuning"]
    assert tuning["done"] and tuning["best"] and tuning["energy_change"]["high"] < 0.0
    assert document["run"]["status"]["origin"] == "simulated"
    assert json.loads((tmp_path / "run.json").read_text())["status"]["tuning"] == tuning
    plan = read_plan("plan.json")
    assert plan.document() == document["plan"]
    assert plan.origin == "simulated" and plan.granularity == "iteration" and plan.workload == "gpt3-small"
    assert plan.tuned is not None and plan.tuned.settings > 3  # one that is abandoned as too slow counts as no trial
    assert plan.tuned.trials > 3
    assert plan.headline.energy_change == pytest.approx(tuning["energy_change"]["value"], abs=1e-6)
    assert plan.schedule is not None and str(plan.schedule.rungs[0].segments[0].setting) == tuning["best"]
    assert run_command(["apply", "plan.json", "--device", "sim:rtx-a4000", "--iterations", "30", "--quiet", "--json"]) == 0
    applied = json.loads(capsys.readouterr().out)
    assert applied["status"]["plan_digest"] == plan.digest and applied["status"]["tuning"] is None


def test_what_could_be_tried_is_said_without_trying(capsys):
    assert run_command(["tune", "--device", "sim:h200", "--workload", "gpt3-small", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "wastenot.tune-settings/1" and document["settings"]["clock"][0] == 1965.0
    few = ["--core", "1500,1800", "--dry-run"]
    assert run_command(["tune", "--device", "sim:h200", "--workload", "gpt3-small", *few]) == 0
    said = capsys.readouterr().out
    assert "2 from core 1800" in said and "limit" not in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--device", "sim:h200"], "what is to run? On a simulated GPU either a workload"),
        (["--device", "sim:h200", "--workload", "gpt3-small", "--", "true"], "--workload: has no effect beside a program"),
        (["--device", "sim:h200", "--iterations", "5", "--", "true"], "--iterations: has no effect beside a program"),
        (["--device", "sim:h200", "--out", "plan.json", "--", "true"], "--out: has no effect in a rehearsal"),
        (["--device", "sim:h200", "--workload", "gpt3-small", "--iterations", "0"], "--iterations 0: must be at least 1"),
        (["--device", "sim:h200", "--workload", "gpt3-small", "--core", "1501"], "--core 1501: the GPU has no such clock"),
        (["--device", "sim:h200", "--workload", "gpt3-small", "--power-limit", "90"], "takes 200 to 700 W"),
        (["--device", "sim:h200", "--workload", "gpt3-small", "--max-slowdown=-1%"], "--max-slowdown"),
        (["--device", "sim:h200,sim:h200", "--workload", "gpt3-small"], "is given twice"),
        (["--device", "sim:h200", "--workload", "gpt3-small", "--tolerance", "0"], "--tolerance 0: must be above 0"),
        (["--device", "sim:h200", "--workload", "gpt3-small", "--budget", "soon"], "--budget"),
        ([], "what is to run?"),
    ],
)
def test_bad_input_is_one_line(arguments, says, capsys):
    assert run_command(["tune", *arguments]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_a_command_that_is_not_there_ends_as_in_a_shell(capsys):
    assert run_command(["tune", "--", "no-such-program-anywhere"]) == 127
    assert "there is no such command" in capsys.readouterr().err


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_program_beside_a_simulated_gpu_is_rehearsed(tmp_path, capfd, dry_run, runtime):
    (tmp_path / "job.py").write_text(PROGRAM.replace("0.05", "0.002").replace("+ 300.0", "+ 0.5"))
    tune = ["tune", "--device", "sim:rtx-a4000", "--quiet", *(["--dry-run"] if dry_run else [])]
    assert run_command([*tune, "--json", "--", sys.executable, str(tmp_path / "job.py"), str(tmp_path / "never")]) == 7
    said = capfd.readouterr()
    document = json.loads(said.out)
    status, seen = document["run"]["status"], document["run"]["status"]["rehearsal"]
    assert document["plan"] is None and document["run"]["exit_code"] == 7 and status["dry_run"] is dry_run
    assert seen["iterations"][0] > 10 and seen["missing"] == [] and status["gpus"][0]["energy_j"] is None
    assert document["run"]["trials"] == [] and status["tuning"]["trials"] == 0
    assert status["tuning"]["best"] is None and status["proof"]["energy_change"] is None


def end_when_one_was_tried(enough):
    """Make a file as soon as the session says that a setting has been tried."""
    ends_s = time.monotonic() + 300.0
    while time.monotonic() < ends_s and not enough.exists():
        for path in socket_paths():
            with suppress(OSError, ValueError):
                answer = ask(path, "status")
                if answer is not None and answer["status"]["tuning"]["tried"] >= 1:
                    enough.touch()
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("preset", "device", "setter"),
    [("h200", "nvidia:0", "nvmlDeviceSetPowerManagementLimit"), ("mi300x", "amd:0", "amdsmi_set_power_cap")],
)
def test_a_program_on_a_gpu_is_tuned_and_the_gpu_left_as_it_was(
    preset, device, setter, tmp_path, monkeypatch, capfd, runtime
):
    with start_stand_in(preset, gpus=1, memory_lock=True, wall=device == "amd:0") as server:  # reading AMD's takes no time
        server.use(monkeypatch)
        monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "state"))
        enough = tmp_path / "enough"
        threading.Thread(target=end_when_one_was_tried, args=(enough,), daemon=True).start()
        (tmp_path / "job.py").write_text(PROGRAM)
        plan = tmp_path / "plan.json"
        tune = [
            "tune",
            "--device",
            device,
            "--max-slowdown",
            "50%",
            "--power-limit",
            "300,500",
            "--out",
            str(plan),
            "--quiet",
            "--json",
        ]
        assert run_command([*tune, "--", sys.executable, str(tmp_path / "job.py"), str(enough)]) == 7
        document = json.loads(capfd.readouterr().out)
        tuning = document["run"]["status"]["tuning"]
        assert tuning["tried"] >= 1 and tuning["iterations"] > 10 and document["run"]["exit_code"] == 7
        assert read_plan(plan).origin == document["plan"]["origin"]
        limits = [call for call in server.control.state(0).setters if call.name == setter]
        assert limits and server.control.state(0).untouched
