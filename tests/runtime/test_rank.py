"""What the start-up hook makes of a program that knows nothing of wastenot."""

from types import SimpleNamespace

from wastenot.runtime import rank, torch_pipelining
from wastenot.runtime.wire import PIPELINE, VARIABLE


def test_where_the_plan_is_for_a_pipeline_its_stages_are_watched(monkeypatch):
    watched = []
    monkeypatch.setattr(rank, "_at_work", [])
    monkeypatch.setattr(torch_pipelining, "watch_stages", watched.append)
    monkeypatch.setenv(VARIABLE, "/nowhere/session.sock")
    monkeypatch.setenv(PIPELINE, "1")
    torch = SimpleNamespace(__version__="2")
    rank.watch_from_outside(torch)
    rank.watch_from_outside(torch)  # once is enough
    assert watched == [rank.rank_of_this_process().instruct_stage]
