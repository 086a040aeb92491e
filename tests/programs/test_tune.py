"""``wn.tune``: what it refuses and writes; the tests of the command tune a real program."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import wastenot as wn
from wastenot.control.places import socket_paths
from wastenot.control.tuner import Tuner
from wastenot.control.wire import VARIABLE
from wastenot.programs.child_program import running_program


@pytest.mark.parametrize(
    ("what", "device", "more", "says"),
    [
        (["python", "train.py"], ("sim:h200", wn.open_device("sim:v100")), {}, "either simulated GPUs .* or real ones"),
        ("gpt3-huge", "sim:h200", {}, "gpt3-huge"),
        ("gpt3-small", ("sim:h200", "sim:h200"), {}, "is given twice"),
        ("gpt3-small", "sim:h200", {"options": wn.TuneOptions(core_mhz=[1501])}, "the GPU has no such clock"),
        ("gpt3-small", "sim:h200", {"options": wn.TuneOptions(tolerance=0.0)}, "^tolerance 0: must be above 0"),
        ("gpt3-small", "sim:h200", {"max_slowdown": -0.1}, "^max_slowdown -0.1: "),
    ],
)
def test_what_cannot_be_tuned_is_refused(what, device, more, says):
    with pytest.raises(wn.BadInputError, match=says):
        wn.tune(what, device, **more)


def test_a_program_beside_a_simulated_gpu_is_rehearsed(tmp_path, capsys, runtime):
    found = wn.tune([sys.executable, "-c", "raise SystemExit(7)"], "sim:h200")
    assert found.exit_code == 7 and found.plan is None and found.summary.status.rehearsal.iterations == (0,)
    assert "wastenot: no iterations were seen" in capsys.readouterr().err
    with pytest.raises(wn.BadInputError, match="a rehearsal measures nothing"):
        found.write(tmp_path / "plan.json")


def test_what_was_found_is_written(tmp_path):
    found = wn.tune("gpt3-small", "sim:rtx-a4000", wn.TuneOptions(settings="limits"), max_slowdown=0.05, iterations=150)
    found.write(tmp_path / "plan.json")
    assert wn.read_plan(tmp_path / "plan.json") == found.plan and found.plan.tuned is not None
    assert found.summary.status.tuning.tried > 0 and found.exit_code == 0


def test_a_job_that_ends_before_anything_was_measured_has_no_plan(tmp_path):
    found = wn.tune("gpt3-small", "sim:rtx-a4000", watch=lambda status: True)
    assert found.plan is None
    with pytest.raises(wn.BadInputError, match="ended before anything was measured"):
        found.write(tmp_path / "plan.json")


@pytest.mark.parametrize(
    ("what", "more", "says"),
    [
        ([], {}, "^what: names no program"),
        (["true"], {"iterations": 3, "watch": lambda status: False}, "^iterations, watch: can only be given for a sim"),
        (["true"], {"layers": 3}, "^layers: can only be given for a simulated job, not for a program"),
        ("gpt3-small", {"iterations": 0}, "^iterations 0: must be at least 1"),
    ],
)
def test_arguments_that_make_no_sense_are_named(what, more, says):
    with pytest.raises(wn.BadInputError, match=says):
        wn.tune(what, "sim:h200", **more)


def test_threads_tune_programs_side_by_side(runtime):
    """Each program reports to a session of its own, and signals stay with the main thread."""
    job = f"import os, time; print(os.environ[{VARIABLE!r}], file=open({str(runtime)!r} + f'/{{os.getpid()}}', 'w'))"
    job += "; time.sleep(0.5); raise SystemExit(7)"
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(wn.tune, [sys.executable, "-c", job], f"sim:{name}") for name in ("h200", "v100")]
        assert [each.result().exit_code for each in running] == [7, 7]
    assert len({path.read_text() for path in runtime.iterdir()}) == 2 and not socket_paths()


def test_a_program_ends_where_its_signals_cannot_be_passed_on(monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **more: started.append(popen(*given, **more)) or started[-1])

    def refuse(number, handler):
        raise ValueError("no handlers here")

    monkeypatch.setattr(signal, "signal", refuse)
    with pytest.raises(ValueError, match="no handlers here"), running_program(["sleep", "300"], to_stderr=False):
        pass
    assert started[0].returncode == -signal.SIGTERM


def test_why_a_search_ended_early_is_told(runtime, tmp_path, monkeypatch, capsys):
    def lost(tuner, now_s):
        raise wn.DeviceError("the GPU has fallen off the bus")

    monkeypatch.setattr(Tuner, "act", lost)
    monkeypatch.setattr(Tuner, "due_s", lambda tuner: 0.0)
    make = wn.TuneOptions.tuner
    monkeypatch.setattr(wn.TuneOptions, "tuner", lambda *given, **more: make(*given, **more | {"rehearsal": False}))
    found = wn.tune([sys.executable, "-c", "import time; time.sleep(0.5)"], "sim:h200")
    assert found.exit_code == 0 and found.problem == "the GPU has fallen off the bus"
    said = capsys.readouterr().err
    assert "wastenot: the plan ended early" in said and found.problem in said
    with pytest.raises(wn.BadInputError, match="before anything was measured: the GPU has fallen off the bus"):
        found.write(tmp_path / "plan.json")
