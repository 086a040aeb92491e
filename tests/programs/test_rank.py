"""What the start-up hook makes of a program that knows nothing of wastenot."""

import sys
from types import SimpleNamespace

import wastenot as wn
from testbed.heard_markers import HeardMarkers
from testbed.pipeline_runs import made_profile, planned
from wastenot.control.rank import Rank
from wastenot.control.session import Session
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


def test_stages_that_are_watched_from_outside_are_not_watched_twice(tmp_path, monkeypatch):
    watched = []
    monkeypatch.setattr(torch_pipelining, "watch_stages", lambda tell: watched.append(tell) or watched.clear)
    monkeypatch.setattr(instrumented, "_at_work", [])
    monkeypatch.setenv(PIPELINE, "1")
    plan = planned(made_profile(2, forward_s=0.06), 3, slower=0.1)
    with Session(HeardMarkers(), tmp_path / "s.sock", lease=False) as session:
        monkeypatch.setenv(VARIABLE, str(session.path))
        instrumented.watch_from_outside(sys.modules.get("torch"))
        with wn.apply(plan, rank=0) as applied:
            applied.watch_pipelining()
            assert watched == [instrumented.rank_of_this_process().instruct_stage]
        session.end()


def test_instructions_marked_by_hand_replace_those_of_stages(monkeypatch):
    marked, rank = [], Rank("")
    monkeypatch.setattr(Rank, "_instruct", lambda self, marker, seat: marked.append(marker))
    rank.instruct_stage("forward", 0, 1, 1)
    rank.instruct("forward:1", 1)
    rank.instruct_stage("forward", 1, 1, 1)
    assert marked == ["forward:0:1", "forward:1"]
