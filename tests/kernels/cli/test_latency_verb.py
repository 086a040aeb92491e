"""``wastenot device latency``: announced, measured, resumed, kept in a study, and taken by plans."""

from __future__ import annotations

import json
import os
import re

import pytest

from testbed.program import check_document
from wastenot.cli.main import run
from wastenot.planning.latency import read_latency
from wastenot.study.store import open_study
from wastenot.study.sweep_file import import_sweep

QUICK = ["device", "latency", "--device", "sim:v100", "--what", "core", "--core", "802.5,1380", "--relative-error", "0.1"]
ROWS = "kernel,count,core_mhz,memory_mhz,time_s,energy_j\na,1,,,1,100\na,1,1380,877,1,90\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_announces_measures_and_writes_a_file_that_plans_take(folder, capsys):
    (folder / "sweep.csv").write_text(ROWS)
    import_sweep(folder / "sweep.csv", "s.db", device="sim:v100")
    assert run([*QUICK, "--study", "s.db"]) == 0
    printed = capsys.readouterr()
    assert "about" in printed.err and "a simulated device's time is virtual" in printed.err
    for words in ("By target", "1,380 MHz", "Core clock, by start and target", "Cost of a switch", "does not cover"):
        assert words in printed.out.replace("\xa0", " "), words
    found = read_latency("latency-sim-v100.json")
    assert [each.target for each in found.targets] == [802.5, 1380.0]
    assert not list(folder.glob(".*partial")) and open_study("s.db").latency() == found.to_json()
    assert run(["kernel", "plan", "--study", "s.db", "--json"]) == 0
    switching = json.loads(capsys.readouterr().out)["applicable"]["switching"]
    assert switching["basis"] == "measured" and switching["core_s"] == max(each.seconds for each in found.targets)
    assert run(["kernel", "plan", "--study", "s.db", "--switch-time", "3ms", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["applicable"]["switching"]["basis"] == "given"


def test_a_file_is_given_to_a_plan(folder, capsys):
    (folder / "sweep.csv").write_text(ROWS)
    import_sweep(folder / "sweep.csv", "s.db", device="sim:v100")
    import_sweep(folder / "sweep.csv", "other.db", device="another")
    assert run([*QUICK, "--out", "l.json"]) == 0
    measured = capsys.readouterr()
    assert "--latency l.json" in measured.err
    assert run(["show", "l.json"]) == 0 and capsys.readouterr().out == measured.out
    assert run(["kernel", "plan", "--study", "s.db", "--latency", "l.json", "-v"]) == 0
    assert "as measured" in capsys.readouterr().out
    assert run(["kernel", "plan", "--study", "other.db", "--latency", "l.json"]) == 2
    assert "--latency: l.json: is of 'sim:v100'" in capsys.readouterr().err
    assert run([*QUICK, "--study", "other.db", "--out", "m.json"]) == 2
    assert "holds measurements of 'another'" in capsys.readouterr().err and not (folder / "m.json").exists()


def test_the_document_is_the_file(folder, capsys):
    assert run([*QUICK, "--json", "--out", "l.json"]) == 0
    text = capsys.readouterr().out
    check_document("device latency", text)
    document = json.loads(text)
    assert document.pop("files") == ["l.json"] and document == json.loads((folder / "l.json").read_text())


def test_a_page_and_figures_are_written(folder, capsys, svg_only):
    assert run([*QUICK, "--out", "l.json", "--page", "l.html", "--figures", "figures"]) == 0
    page = (folder / "l.html").read_text()
    longest_s = max(each.longest_s for each in read_latency("l.json").targets)
    assert f"up to {1e3 * longest_s:.3g}" in page.partition("too slow for single kernels")[0] and "Next" in page
    assert run(["report", "l.json", "--page", "again.html"]) == 0
    assert "The core clock took up to" in (folder / "again.html").read_text()
    assert sorted(os.listdir("figures")) == [f"latency-targets.{suffix}" for suffix in ("pdf", "png", "svg")]
    assert "802.5" in (folder / "figures" / "latency-targets.svg").read_text()
    assert run([*QUICK, "--page", "l.html"]) == 0  # the file of that is named by default, and so is the next command
    assert "--latency latency-sim-v100.json" in (folder / "l.html").read_text()


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(folder, capsys):
    assert run(["device", "latency", "--device", "sim:h200", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert (
        "core clock between 5 values" in text
        and "power limit between 4 values" in text
        and "of virtual device time" in text.replace("\xa0", " ")
    )
    assert run(["device", "latency", "--device", "sim:h200", "--dry-run", "--json"]) == 0
    printed = capsys.readouterr().out
    check_document("device latency", printed, dry_run=True)
    document = json.loads(printed)
    assert [part["what"] for part in document["parts"]] == ["core", "memory", "power_limit"] and document["device_s"] > 60.0
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--what", "cores"], "--what cores: there is no such kind; did you mean 'core'?"),
        (["--core", "801"], "--core 801: the device has no such core clock; the nearest is 802.5"),
        (["--core", "fast"], "--core: 'fast' "),
        (["--core", "802.5"], "only one was given"),
        (["--what", "memory"], "memory clock: the device has only one"),
        (["--what", "memory", "--core", "802.5,1380"], "--core: gives core clocks, but --what leaves them out"),
        (["--relative-error", "0"], "--relative-error 0: must be between 0 and 1"),
        (["--time-limit", "soon"], "--time-limit: 'soon' is not a time"),
        (["--out", "nowhere/l.json"], "nowhere"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(folder, capsys, arguments, says):
    assert run(["device", "latency", "--device", "sim:v100", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1 and not list(folder.iterdir())


def test_a_recording_has_no_latency(folder, capsys):
    (folder / "sweep.csv").write_text(f"{ROWS}a,1,900,877,2,95\n")
    import_sweep(folder / "sweep.csv", "s.db", device="a card")
    assert run(["device", "latency", "--device", "recorded:s.db"]) == 2
    assert re.search(r"a recording cannot switch clocks|nothing to switch", capsys.readouterr().err)


def test_an_interrupted_run_says_how_to_resume_and_does(folder, capsys, monkeypatch):
    from wastenot.kernels.latency import session

    batches = session.Session._batch

    def interrupted(self, error):
        if len(self._notebook.observations) > 5:
            raise KeyboardInterrupt
        return batches(self, error)

    monkeypatch.setattr(session.Session, "_batch", interrupted)
    longer = [*QUICK, "--relative-error", "0.04"]
    monkeypatch.setattr("sys.argv", ["wastenot", *longer, "--out", "l.json"])
    assert run([*longer, "--out", "l.json"]) == 130
    error = capsys.readouterr().err
    assert "measurements are kept; resume: wastenot device latency --device sim:v100" in error
    assert (folder / ".l.json.partial").exists() and not (folder / "l.json").exists()
    monkeypatch.setattr(session.Session, "_batch", batches)
    assert run([*longer, "--out", "l.json"]) == 0
    assert "switches were timed before" in capsys.readouterr().err
    assert os.listdir() == ["l.json"]
