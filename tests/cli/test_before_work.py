"""What is refused before the work: options that have no effect together, outputs that cannot be written. Nothing changes."""

import os
import sys
from pathlib import Path

import pytest

from wastenot.cli.main import app
from wastenot.core.errors import BadInputError
from wastenot.terminal.option_rules import RULES, check_rules, needs, not_with

SIM = ["--device", "sim:h200", "--study", "x.db"]


def content(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sweep", "gpt3-xl", *SIM, "--share", "0.5"], "--share: has no effect without --search model; leave it out"),
        (["sweep", "gpt3-xl", *SIM, "--max-slowdown", "2%"], "--max-slowdown: has no effect without --search model"),
        (["sweep", "gpt3-xl", *SIM, "--clocks", "auto", "--core-step", "90"], "without --clocks grid"),
        (["sweep", "gpt3-xl", *SIM, "--clocks", "auto", "--memory", "3201"], "--memory: has no effect"),
        (["sweep", "gpt3-xl", *SIM, "--clocks", "auto", "--search", "model"], "--search: has no effect"),
        (["sweep", "gpt3-xl", *SIM, "--core", "1980", "--core-step", "90"], "--core-step: has no effect with --core"),
        (["sweep", "gpt3-xl", *SIM, "--rounds", "2"], "--rounds: has no effect without --clocks auto"),
        (["sweep", "gpt3-xl", *SIM, "--seconds-each", "9"], "--seconds-each: has no effect without --clocks natural"),
        (["sweep", "gpt3-xl", *SIM, "--clocks", "natural", "--warm-up", "1"], "--warm-up: has no effect with"),
        (["sweep", "gpt3-xl", *SIM, "--restore-clocks", "345-1980"], "without --allow-clock-control"),
        (["sweep", "gpt3-xl", *SIM, "--allow-clock-control", "--restore-clocks", "345-1980"], "on sim:h200"),
        (["sweep", "gpt3-xl", "--device", "nvidia:0", "--study", "x.db", "--seed", "4"], "only a simulated GPU has a seed"),
        (["sweep", "mine.json", *SIM, "--batch", "4"], "--batch: has no effect with mine.json"),
        (["sweep", "tiny", "--device", "recorded:my.db", "--study", "x.db", "--batch", "4"], "no effect on recorded:my.db"),
        (["run", "gpt3-xl", "--as-measured", "--confidence", "0.9"], "--confidence: has no effect with --as-measured"),
        (["natural", "--study", "my.db", "--batch", "4"], "--batch: has no effect without --device"),
        (["transfer", "--plan", "p.json", "--device", "sim:h200", "--batch", "1", "--sequence-parallel"], "no effect"),
        (["profile", "gemm:4096", "--device", "sim:h200", "--batch", "4"], "--batch: has no effect with gemm:4096"),
        (["monitor", "--quiet", "--interval", "2", "--", "true"], "--interval: has no effect with --quiet"),
        (["plan", "--study", "my.db", "--edp-exponent", "1"], "--edp-exponent: has no effect without --objective edp"),
        (["report", "--applied", "run.json", "--out", "p.html", "--min-dwell", "1s"], "--min-dwell: has no effect"),
        (["frontier", "--study", "my.db", "--clock-tolerance", "15"], "no effect without --granularity"),
        (["plan", "--study", "my.db", "--out", "no/plan.json"], "no/plan.json"),
        (["frontier", "--study", "my.db", "--out", "no/f.json"], "no/f.json"),
        (["report", "--study", "my.db", "--out", "my.db/page.html"], "my.db/page.html"),
        (["report", "--study", "my.db", "--out", "page.html", "--figures", "my.db"], "my.db: is a file; give a folder"),
        (["forecast", "--study", "my.db", "--out", "no/f.json"], "no/f.json"),
        (["calibrate", "--study", "my.db", "--out", "no/gpu.toml"], "no/gpu.toml"),
        (["sensor", "--device", "sim:h200", "--out", "no/s.json"], "no/s.json"),
        (["capture", "train.py:step", "--out", "no/w.json"], "no/w.json"),
        (["monitor", "--csv", "no/m.csv", "--", "true"], "no/m.csv"),
        (["profile", "gemm:4096", "--device", "sim:h200", "--report", "no/p.html"], "no/p.html"),
        (["profiles", "p.parquet", "--report", "no/p.html"], "no/p.html"),
        (["validate", "--study", "my.db", "--plan", "p.json", "--out", "no/p.json"], "no/p.json"),
        (["transfer", "--plan", "p.json", "--device", "sim:h200", "--batch", "1", "--figures", "my.db/f"], "my.db/f"),
        (["natural", "--device", "sim:h200", "--out", "no/page.html"], "no/page.html"),
        (["natural", "gpt3-xl", "--device", "sim:h200", "--study", "no/x.db"], "no/x.db"),
        (["run", "gpt3-xl", "--out", "my.db"], "my.db: is a file; give a folder"),
        (["run", "gpt3-xl", "--out", "my.db/there"], "my.db/there"),
        (["run", "gpt3-xl", "--repeats", "1"], "--repeats 1"),
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
    assert "Permission denied" in study.refuse("run", "gpt3-xl", "--out", "locked/here")


def test_pages_need_their_software_before_the_work(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    said = study.refuse("report", "--study", "my.db", "--out", "page.html")
    assert "altair" in said
    assert "altair" in study.refuse("run", "gpt3-xl", "--out", "all") and not (study.folder / "all").exists()


def test_every_rule_is_about_options_that_there_are():
    verbs = app_commands()
    for verb, rules in RULES.items():
        names = {parameter.name for parameter in verbs[verb].params}
        for rule in rules:
            assert names.issuperset(rule.options), (verb, rule.options)


def test_every_output_is_tried_first():
    """What writes a file is called by one of the names that are tried: an output of another name would be forgotten."""
    for name, verb in app_commands().items():
        for parameter in verb.params:
            writes = (parameter.metavar or "").startswith(("DIR", "FILE.html")) or "Write" in (
                getattr(parameter, "help", "") or ""
            )
            assert not writes or parameter.name in ("out", "report", "page", "csv", "figures", "summary", "dry_run"), (
                name,
                parameter.name,
            )


def app_commands():
    import typer

    return typer.main.get_command(app).commands


def test_only_options_that_were_typed_are_refused():
    rules = (needs("share", "search", "model"), not_with("core_step", "core"))
    values = {"share": 0.3, "search": "grid", "core_step": 210.0, "core": "1000"}
    check_rules(rules, values, lambda name: False)
    with pytest.raises(BadInputError, match="--share: has no effect without --search model"):
        check_rules(rules, values, lambda name: name == "share")
    with pytest.raises(BadInputError, match="--core-step: has no effect with --core; leave it out"):
        check_rules(rules, values, lambda name: name == "core_step")
    check_rules(rules, values | {"search": "model", "core": None}, lambda name: True)
