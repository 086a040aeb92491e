"""What is refused before the work: options that have no effect together, outputs that cannot be written. Nothing changes."""

import os
import sys
from pathlib import Path

import pytest

from testbed.program import COMMANDS
from wastenot.terminal.option_rules import RULES

SIM = ["--device", "sim:h200", "--study", "x.db"]


def content(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["kernel", "sweep", "gpt3-xl", *SIM, "--share", "0.5"],
         "--share: has no effect without --search model; leave it out"),
        (["kernel", "sweep", "gpt3-xl", *SIM, "--max-slowdown", "2%"],
         "--max-slowdown: has no effect without --search model"),
        (["kernel", "sweep", "gpt3-xl", *SIM, "--clocks", "auto", "--core-step", "90"], "without --clocks grid"),
        (["kernel", "sweep", "gpt3-xl", *SIM, "--clocks", "auto", "--memory", "3201"], "--memory: has no effect"),
        (["kernel", "sweep", "gpt3-xl", *SIM, "--clocks", "auto", "--search", "model"], "--search: has no effect"),
        (["kernel", "sweep", "gpt3-xl", *SIM, "--core", "1980", "--core-step", "90"],
         "--core-step: has no effect with --core"),
        (["kernel", "sweep", "gpt3-xl", *SIM, "--rounds", "2"], "--rounds: has no effect without --clocks auto"),
        (["kernel", "sweep", "gpt3-xl", *SIM, "--seconds-each", "9s"],
         "--seconds-each: has no effect without --clocks natural"),
        (["kernel", "sweep", "gpt3-xl", *SIM, "--clocks", "natural", "--warm-up", "1s"], "--warm-up: has no effect with"),
        (["kernel", "sweep", "gpt3-xl", *SIM, "--restore-clocks", "345-1980"], "without --allow-clock-control"),
        (["kernel", "sweep", "gpt3-xl", *SIM, "--allow-clock-control", "--restore-clocks", "345-1980"], "on sim:h200"),
        (["kernel", "sweep", "gpt3-xl", "--device", "nvidia:0", "--study", "x.db", "--seed", "4"],
         "only a simulated GPU has a seed"),
        (["kernel", "sweep", "mine.json", *SIM, "--batch", "4"], "--batch: has no effect with mine.json"),
        (["kernel", "sweep", "tiny", "--device", "recorded:my.db", "--study", "x.db", "--batch", "4"],
         "no effect on recorded:my.db"),
        (["kernel", "run", "gpt3-xl", "--as-measured", "--confidence", "0.9"],
         "--confidence: has no effect with --as-measured"),
        (["kernel", "natural", "--study", "my.db", "--batch", "4"], "--batch: has no effect without --device"),
        (["kernel", "transfer", "--plan", "p.json", "--device", "sim:h200", "--batch", "1", "--sequence-parallel"],
         "no effect"),
        (["profile", "run", "gemm:4096", "--device", "sim:h200", "--batch", "4"], "--batch: has no effect with gemm:4096"),
        (["monitor", "--quiet", "--interval", "2s", "--", "true"], "--interval: has no effect with --quiet"),
        (["kernel", "plan", "--study", "my.db", "--edp-exponent", "1"],
         "--edp-exponent: has no effect without --objective edp"),
                (["kernel", "frontier", "--study", "my.db", "--clock-tolerance", "15"], "no effect without --granularity"),
        (["kernel", "plan", "--study", "my.db", "--out", "no/plan.json"], "no/plan.json"),
        (["kernel", "frontier", "--study", "my.db", "--out", "no/f.json"], "no/f.json"),
        (["report", "my.db", "--page", "my.db/page.html"], "my.db/page.html"),
        (["report", "my.db", "--page", "page.html", "--figures", "my.db"], "my.db: is a file; give a folder"),
        (["kernel", "forecast", "--study", "my.db", "--out", "no/f.json"], "no/f.json"),
        (["device", "calibrate", "--study", "my.db", "--out", "no/gpu.toml"], "no/gpu.toml"),
        (["device", "sensor", "--device", "sim:h200", "--out", "no/s.json"], "no/s.json"),
        (["kernel", "capture", "train.py:step", "--out", "no/w.json"], "no/w.json"),
        (["monitor", "--csv", "no/m.csv", "--", "true"], "no/m.csv"),
        (["profile", "run", "gemm:4096", "--device", "sim:h200", "--page", "no/p.html"], "no/p.html"),
        (["profile", "compare", "p.parquet", "--page", "no/p.html"], "no/p.html"),
        (["kernel", "validate", "--study", "my.db", "--plan", "p.json", "--out", "no/p.json"], "no/p.json"),
        (["kernel", "transfer", "--plan", "p.json", "--device", "sim:h200", "--batch", "1", "--figures", "my.db/f"],
         "my.db/f"),
        (["kernel", "natural", "--device", "sim:h200", "--page", "no/page.html"], "no/page.html"),
        (["kernel", "natural", "gpt3-xl", "--device", "sim:h200", "--study", "no/x.db"], "no/x.db"),
        (["kernel", "run", "gpt3-xl", "--out", "my.db"], "my.db: is a file; give a folder"),
        (["kernel", "run", "gpt3-xl", "--out", "my.db/there"], "my.db/there"),
        (["kernel", "run", "gpt3-xl", "--repeats", "1"], "--repeats 1"),
        (["reproduce", "--out", "my.db"], "my.db: is a file; give a folder"),
    ],
)  # fmt: skip
def test_it_is_refused_in_one_line_and_nothing_changes(study, arguments, says):
    before = content(study.folder)
    assert says in study.refuse(*arguments)
    assert content(study.folder) == before


def test_a_command_that_cannot_run_leaves_the_readings_of_an_earlier_one(study):
    (study.folder / "readings.csv").write_text("earlier\n")
    assert "cannot run" in study.refuse("monitor", "--device", "sim:h200", "--csv", "readings.csv", "--", "no-such-program")
    assert (study.folder / "readings.csv").read_text() == "earlier\n"


def test_a_folder_that_may_not_be_written_is_said_before(study, monkeypatch):
    folder, may = study.folder / "locked", os.access
    folder.mkdir()
    monkeypatch.setattr(os, "access", lambda path, *how: Path(path).name != "locked" and may(path, *how))  # root may
    assert "Permission denied" in study.refuse("kernel", "run", "gpt3-xl", "--out", "locked/here")


def test_pages_need_their_software_before_the_work(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    said = study.refuse("report", "my.db", "--page", "page.html")
    assert "altair" in said
    assert "altair" in study.refuse("kernel", "run", "gpt3-xl", "--out", "all") and not (study.folder / "all").exists()


def test_every_rule_is_about_options_that_there_are():
    for command, rules in RULES.items():
        names = {parameter.name for parameter in COMMANDS[command].params}
        for rule in rules:
            assert names.issuperset(rule.options), (command, rule.options)


def test_every_output_is_tried_first():
    """What writes a file is called by one of the names that are tried: an output of another name would be forgotten."""
    for name, verb in COMMANDS.items():
        for parameter in verb.params:
            writes = (parameter.metavar or "").startswith(("DIR", "FILE.html")) or "Write" in (
                getattr(parameter, "help", "") or ""
            )
            assert not writes or parameter.name in ("out", "page", "csv", "figures", "summary", "dry_run"), (
                name,
                parameter.name,
            )
