"""``report --pipeline``: the page of a pipeline's plan, made again from its file."""

import json

import pytest

from testbed.small_pipelines import planned


@pytest.fixture
def folder(wastenot):
    planned(rungs=4).plan.write(wastenot.folder / "pipeline.json")
    return wastenot.folder


def test_a_page_and_figures_of_a_pipelines_plan(wastenot, folder, svg_only):
    done = wastenot("report", "pipeline.json", "--page", "page.html", "--figures", "figures", "--json")
    assert done.code == 0, done.err
    printed = json.loads(done.out)
    assert printed["schema"] == "wastenot.report/1" and printed["pipeline"]["schema"] == "wastenot.pipeline/1"
    page = (folder / "page.html").read_text()
    assert "of the energy, no slower" in page
    assert "wastenot report pipeline.json --page page.html --figures figures" in page
    assert len(printed["figures"]) == len(list((folder / "figures").iterdir())) == 12


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["pipeline.json", "--study", "my.db"], "--study: has no effect on pipeline.json, which is a pipeline's plan"),
        (["pipeline.json", "--max-slowdown", "2%"], "--max-slowdown: has no effect on pipeline.json"),
        (["missing.json"], "missing.json: cannot be read"),
        (["edited.json"], "edited.json:1: digest: does not match"),
    ],
)
def test_bad_input_is_one_line(wastenot, folder, more, said):
    values = json.loads((folder / "pipeline.json").read_text())
    values["device"] = "another"
    (folder / "edited.json").write_text(json.dumps(values))
    done = wastenot("report", *more, "--page", "page.html")
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1, done.err
    assert not (folder / "page.html").exists()
