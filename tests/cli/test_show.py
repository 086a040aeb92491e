"""``show`` and ``report`` take any file of results, and know it by its schema."""

import json
from pathlib import Path

import pytest

import wastenot as wn
from testbed.applied import summary
from testbed.program import SWEEP
from testbed.small_pipelines import planned
from wastenot.cli.main import run
from wastenot.cli.result_files import KINDS
from wastenot.workloads.build import build_workload

ROOT = Path(__file__).parents[2]


@pytest.fixture
def results(study):
    """A file of each kind that is quickly made."""
    assert study("kernel", "plan", "--study", "my.db", "--as-measured", "--out", "plan.json").code == 0
    planned(rungs=4).plan.write(study.folder / "pipeline.json")
    (study.folder / "apply.json").write_text(summary(points=50).model_dump_json(by_alias=True))
    (study.folder / "engine.json").write_bytes((ROOT / "data" / "serving" / "llama-8b-sim-h200.json").read_bytes())
    wn.write_workload(build_workload("gpt3-small", batch=8), study.folder / "workload.json")
    return study


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("plan", "Upper bound"),
        ("pipeline", "iteration"),
        ("apply", "Saved 8.1"),
        ("engine", "Best choices"),
        ("workload", "gpt3-small-batch8"),
    ],
)
def test_a_file_is_shown_by_what_it_holds(results, kind, says, monkeypatch, capsys):
    shown = results("show", f"{kind}.json")
    assert shown.code == 0 and says in shown.out, shown
    monkeypatch.chdir(results.folder)
    assert run(["show", f"{kind}.json", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)  # of a schema that is the file's, not the verb's
    assert document == json.loads((results.folder / f"{kind}.json").read_text())
    assert document["schema"].startswith(f"wastenot.{kind}/")


def test_the_default_page_lies_beside_the_file(results, svg_only):
    assert results("report", "engine.json").code == 0
    assert (results.folder / "engine.html").read_text().lower().startswith("<!doctype html>")
    assert "which has no page" in results.refuse("report", "workload.json")


@pytest.mark.parametrize("command", ["show", "report"])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SWEEP, "has no wastenot schema"),
        ("", "has no wastenot schema"),
        ('{"schema": "wastenot.monitor/1"}', "holds something that is not kept in files (wastenot.monitor)"),
        (None, "cannot be read: No such file"),
    ],
)
def test_what_is_no_result_is_refused(wastenot, command, text, says):
    if text is not None:
        (wastenot.folder / "x.json").write_text(text)
    said = wastenot.refuse(command, "x.json")
    assert says in said and (text is None or all(kind.what in said for kind in KINDS.values()))
    assert not (wastenot.folder / "x.html").exists()


def test_a_study_is_known_by_its_content(study):
    (study.folder / "my.db").rename(study.folder / "kept")
    assert "tiny" in study("show", "kept").out
