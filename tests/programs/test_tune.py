"""``wn.tune``: what it refuses and writes; the tests of the command tune a real program."""

import sys

import pytest

import wastenot as wn


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


def test_a_program_beside_a_simulated_gpu_is_rehearsed(tmp_path, monkeypatch):
    monkeypatch.setenv("WASTENOT_RUNTIME", str(tmp_path / "run"))
    found = wn.tune([sys.executable, "-c", "raise SystemExit(7)"], "sim:h200")
    assert found.exit_code == 7 and found.plan is None and found.summary.status.rehearsal.iterations == (0,)
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
