"""Results write the files and the pages that the commands' ``--out`` and ``--page`` write."""

import json
from pathlib import Path

import pytest

import wastenot as wn
from testbed.applied import summary
from testbed.program import SWEEP
from testbed.small_pipelines import planned
from wastenot.control.status import read_summary
from wastenot.core.result import HasPage, by_name
from wastenot.serving.model.configurations import Recommended

ENGINE = Path(__file__).parents[1] / "data" / "serving" / "llama-8b-sim-h200.json"


def test_what_draws_a_page_is_there():
    results = (
        *(wn.EngineProfile, wn.JobOverview, wn.PipelinePlan, wn.PlannedPipeline, wn.Profile, Recommended),
        *map(by_name, ("wastenot.serving.model.steering:Steering", "wastenot.serving.cluster.simulated:SimulatedScenario")),
        *map(by_name, ("wastenot.control.status:Summary", "wastenot.kernels.forecast.result:Forecast")),
        *map(by_name, ("wastenot.planning.latency:Latency", "wastenot.serving.control.replay:Replay")),
    )
    assert {each.drawn_by for each in HasPage.__subclasses__()} <= {each.drawn_by for each in results}
    assert all(callable(by_name(each.drawn_by)) for each in results)


def test_what_is_written_is_read_back(tmp_path):
    path = tmp_path / "file.json"
    run = summary(points=5)
    run.write(path)
    assert read_summary(path) == run
    made = planned()
    made.write(path)
    assert wn.read_pipeline_plan(path) == made.plan
    (tmp_path / "sweep.csv").write_text(SWEEP)
    frontier = wn.whole_frontier(wn.read_sweep(tmp_path / "sweep.csv", device="RTX 3080 Ti"), [0.0, 0.02])
    frontier.write(path)
    assert json.loads(path.read_text()) == json.loads(json.dumps(frontier.document()))
    assert frontier.document()["schema"] == "wastenot.frontier/1"
    engine = wn.read_engine(ENGINE)
    engine.write(path)
    assert wn.read_engine(path).errors == engine.errors


def test_a_page_is_written(tmp_path):
    pytest.importorskip("altair")
    assert summary(points=5).page(tmp_path / "run.html", command="wastenot report run.json") == (tmp_path / "run.html",)
    assert "wastenot report run.json" in (tmp_path / "run.html").read_text()
    (tmp_path / "sweep.csv").write_text(SWEEP)
    wn.import_sweep(tmp_path / "sweep.csv", tmp_path / "my.db", device="RTX 3080 Ti")
    plan = wn.plan(tmp_path / "my.db", as_measured=True)
    assert plan.page(tmp_path / "plan.html", study=tmp_path / "my.db") == (tmp_path / "plan.html",)
    assert plan.digest in (tmp_path / "plan.html").read_text()
