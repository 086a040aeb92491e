"""``wastenot kernel natural`` and ``wastenot kernel sweep --clocks natural``: in one command, resumed, with nothing set."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout

import pytest

from testbed.few_kernels import write_few_kernels
from testbed.study_rows import measured_rows
from wastenot.cli.main import run
from wastenot.core.errors import BadInputError
from wastenot.kernels.verbs import sweep
from wastenot.study.store import open_study

SMALL = ["llama-8b", "--phase", "decode", "--batch", "8"]  # where nothing is measured
DRAWS = ["--draws", "40"]  # the fewest there may be
NATURAL = ["kernel", "sweep", *SMALL, "--device", "sim:h200", "--study", "s.db", "--clocks", "natural"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study, page and document of a small workload."""
    folder = tmp_path_factory.mktemp("natural")
    few = str(write_few_kernels(folder / "few.json", each=24))
    before = os.getcwd()
    os.chdir(folder)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WASTENOT_READ_ONLY", "1")
            with redirect_stdout(io.StringIO()) as out:
                assert (
                    run(["kernel", "natural", few, "--device", "sim:h200", "--study", "n.db", "--page", "n.html", *DRAWS])
                    == 0
                )
    finally:
        os.chdir(before)
    (folder / "printed.txt").write_text(out.getvalue())
    return folder


def test_it_measures_plans_forecasts_and_writes_a_page(made):
    page = (made / "n.html").read_text()
    for words in (
        "simulated",
        "The clock after matrix products",
        "What this cannot show",
        "Where the energy goes",
        "no clock was set",
    ):
        assert words in page
    assert "http" not in page.split("</style>")[1].split("<script>")[0]
    printed = (made / "printed.txt").read_text()
    assert "at natural clocks" in printed and "What this cannot show" in printed


def test_the_document_says_the_same(made, capsys):
    assert run(["kernel", "natural", "--study", str(made / "n.db"), "--page", str(made / "n3.html"), *DRAWS, "--json"]) == 0
    said = capsys.readouterr()
    assert "measured before" not in said.err  # nothing was measured now
    document = json.loads(said.out)
    assert document["schema"] == "wastenot.natural/1" and document["origin"] == "simulated"
    assert {each["granularity"] for each in document["plans"]} == {"kernel", "iteration"}
    assert document["forecast"]["natural"]["within_range"][1]["max_slowdown"] == 0.02
    assert len(document["kernels"]) == len(open_study(made / "n.db").read().kernels)


def test_it_says_everywhere_that_no_clock_was_set(made, capsys):
    study = str(made / "n.db")
    for verb in (["kernel", "plan"], ["kernel", "forecast", *DRAWS], ["show"]):
        assert run([*verb, "--study", study] if verb != ["show"] else ["show", study]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert any(
            words in out
            for words in ("No clock was set", "no clock was set", "No clocks were set", "natural clocks, none set")
        ), verb


def test_rerunning_measures_nothing_again(made, capsys):
    few, study = str(made / "few.json"), str(made / "n.db")
    command = ["kernel", "sweep", few, "--device", "sim:h200", "--study", study, "--clocks", "natural"]
    assert run([*command, "--seconds-each", "1s", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["measured"] == 0 and outcome["found"] == len(open_study(made / "n.db").read().kernels)


def test_a_budget_ends_it_and_the_next_run_goes_on(tmp_path, capsys):
    few = str(write_few_kernels(tmp_path / "few.json", each=20))
    command = [
        "kernel",
        "sweep",
        few,
        "--device",
        "sim:h200",
        "--study",
        str(tmp_path / "s.db"),
        "--clocks",
        "natural",
        "--json",
    ]
    assert run([*command, "--budget", "4s"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["out_of_time"] and first["measured"] >= 1
    seen = len(open_study(tmp_path / "s.db").timelines())
    assert run(command) == 0
    second = json.loads(capsys.readouterr().out)
    kernels = open_study(tmp_path / "s.db").read().kernels
    assert not second["out_of_time"] and second["measured"] + second["found"] == len(kernels)
    assert len(open_study(tmp_path / "s.db").timelines()) > seen
    assert open_study(tmp_path / "s.db").summary().workloads[0].coverage.complete


@pytest.mark.slow
def test_a_kill_loses_at_most_the_run_in_flight(tmp_path):
    study = tmp_path / "s.db"
    few = str(write_few_kernels(tmp_path / "few.json", each=20))
    command = ["kernel", "sweep", few, "--device", "sim:h200", "--study", str(study), "--clocks", "natural"]
    command += ["--seconds-each", "4s"]
    process = subprocess.Popen([sys.executable, "-m", "wastenot", *command], stderr=subprocess.DEVNULL)
    try:
        ends_s = time.monotonic() + 60.0
        while time.monotonic() < ends_s and process.poll() is None and measured_rows(study) == 0:
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = open_study(study).timelines()
    assert kept
    assert run(command) == 0
    after = open_study(study).timelines()
    assert [each.recorded_at for each in after[: len(kept)]] == [each.recorded_at for each in kept]
    assert open_study(study).read().state == "natural"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kernel", "natural"], "--device: give the GPU to measure"),
        (["kernel", "natural", "--study", "none.db"], "none.db: there is no study"),
        (["kernel", "natural", *SMALL, "--device", "sim:h200", "--time-limit", "x"], "'x' is not a time above 0 s"),
        ([*NATURAL, "--seconds-each", "0"], "above 0"),
        ([*NATURAL, "--granularity", "pass"], "--granularity: natural clocks are those of single kernels"),
        ([*NATURAL, "--in-context"], "--in-context: has no effect with --clocks natural"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_changes_nothing(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert says in error and "\n" not in error
    assert list(tmp_path.iterdir()) == []


def test_rows_at_set_clocks_never_join_natural_ones(made, capsys):
    assert run(["kernel", "refine", "--study", str(made / "n.db"), "--device", "sim:h200"]) == 2
    assert "--energies natural: these rows are at clocks that were not set" in capsys.readouterr().err
    with pytest.raises(BadInputError, match="clocks natural"):
        sweep("llama-8b", "sim:h200", made / "other.db", state="natural", phase="decode", batch=8)


def test_a_natural_plan_is_validated_with_clocks_that_are_set(made, capsys):
    plan = str(made / "plan.json")
    assert run(["kernel", "plan", "--study", str(made / "n.db"), "--max-slowdown", "0.05", "--out", plan]) == 0
    assert (
        run(["kernel", "validate", "--plan", plan, "--study", str(made / "n.db"), "--device", "sim:h200", "--repeats", "3"])
        == 0
    )
    out = capsys.readouterr().out
    assert "measured again" in out and re.search(r"the limit \([^)]*\) is kept", " ".join(out.split()))
