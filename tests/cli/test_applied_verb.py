"""``report --applied``: the page of a run, made again from its summary."""

import json

import pytest

from testbed.applied import summary


@pytest.fixture
def folder(wastenot, tmp_path):
    text = summary(points=50).model_dump_json(by_alias=True)
    (wastenot.folder / "run.json").write_text(text)
    return wastenot.folder


def test_a_page_and_figures_of_a_run(wastenot, folder, svg_only):
    done = wastenot("report", "run.json", "--page", "run.html", "--figures", "figures", "--json")
    assert done.code == 0, done.err
    printed = json.loads(done.out)
    assert printed["schema"] == "wastenot.report/1" and printed["plan"] is None
    assert printed["run"]["schema"] == "wastenot.apply/1"
    page = (folder / "run.html").read_text()
    assert "Saved 8.1" in page and "wastenot report run.json --page run.html --figures figures" in page
    assert len(printed["figures"]) == len(list((folder / "figures").iterdir())) == 12


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["run.json", "--study", "my.db"], "--study: has no effect on run.json, which is a run under a plan"),
        (["run.json", "--max-slowdown", "2%"], "--max-slowdown: has no effect on run.json"),
        (["run.json", "--price-per-kwh", "0.2"], "--price-per-kwh: has no effect on run.json"),
        (["missing.json"], "missing.json: cannot be read"),
        (["other.json"], "other.json: holds something that is not kept in files (wastenot.monitor)"),
        (["broken.json"], "broken.json:1: status.rung: "),
        ([], "Missing argument 'FILE|STUDY'"),
    ],
)
def test_bad_input_is_one_line(wastenot, folder, more, said):
    (folder / "other.json").write_text('{"schema": "wastenot.monitor/1"}')
    values = json.loads((folder / "run.json").read_text())
    values["status"]["rung"] = -1
    (folder / "broken.json").write_text(json.dumps(values))
    done = wastenot("report", *more, "--page", "run.html")
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1, done.err
    assert not (folder / "run.html").exists()
