"""What the start-up hook makes of a program that knows nothing of wastenot."""

from types import SimpleNamespace

from wastenot.control.wire import PIPELINE, VARIABLE
from wastenot.pipelines.run import torch_pipelining
from wastenot.programs import instrumented


def test_where_the_plan_is_for_a_pipeline_its_stages_are_watched(monkeypatch):
    watched = []
    monkeypatch.setattr(instrumented, "_at_work", [])
    monkeypatch.setattr(torch_pipelining, "watch_stages", watched.append)
    monkeypatch.setenv(VARIABLE, "/nowhere/session.sock")
    monkeypatch.setenv(PIPELINE, "1")
    torch = SimpleNamespace(__version__="2")
    instrumented.watch_from_outside(torch)
    instrumented.watch_from_outside(torch)  # once is enough
    assert watched == [instrumented.rank_of_this_process().instruct_stage]
