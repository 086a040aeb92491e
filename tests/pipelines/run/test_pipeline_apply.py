"""``wn.apply`` with a pipeline's plan, in programs, on simulated GPUs in wall time."""

import json
import os
import time
from types import SimpleNamespace

import numpy as np
import pytest

import wastenot as wn
from testbed.pipeline_runs import made_profile, planned
from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO
from wastenot.devices.protocol import Identity
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.run.application import check_pipeline_card
from wastenot.pipelines.run.controller import parse_instruction
from wastenot.pipelines.run.own_rank import pipeline_rank
from wastenot.pipelines.run.plan_kind import is_pipeline_plan, ranks_of


@pytest.fixture(autouse=True)
def alone(monkeypatch, runtime):
    for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WASTENOT_APPLY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="module")
def plan():
    return planned(made_profile(2, forward_s=0.06), 3, slower=0.1)


def run_iterations(applied, steps, period_s, iterations):
    """Run a rank's part as planned; when each iteration began, and the instructions that never ran at their clocks."""
    began_s, begun_s, never = time.monotonic(), [], []
    gpu = applied.gpus[0]
    for iteration in range(iterations):
        for place, step in enumerate(steps):
            begin_s = began_s + iteration * period_s + step.start_s
            time.sleep(max(begin_s - time.monotonic(), 0.0))
            with applied.instruction(step.instruction.name, step.instruction.micro_batch):
                now_s = time.monotonic()
                begun_s += [now_s] if place == 0 else []
                found = False
                while time.monotonic() < now_s + 0.6 * step.time_s:
                    time.sleep(0.005)
                    gpu.time.now_s()
                    found = found or gpu.engine.setting == step.stays[0].setting
                never += [] if found else [(iteration, place)]
    return begun_s, never


def test_a_rank_runs_at_its_plans_clocks_and_gives_them_back(plan, tmp_path):
    path = tmp_path / "pipeline.json"
    plan.write(path)
    graph = PlanGraph(plan)
    steps = graph.steps(1)
    with wn.apply(path, rank=1, out=tmp_path / "out.json") as applied:
        assert applied.pipeline_rank == 1 and [gpu.identity.name for gpu in applied.gpus] == ["sim:h200"]
        begun_s, never = run_iterations(applied, steps, graph.period_s, 3)
        status = applied.status()
    assert len(never) <= 2, never  # a machine that is busy keeps a thread waiting now and then
    assert applied.gpus[0].engine.requested == AUTO
    assert status.iteration == 2 and status.pipeline.ranks == (1,) and status.pipeline.requests >= 3
    lasted_s = np.diff(begun_s)
    assert 0.9 * lasted_s.min() < status.pipeline.iteration_s < 1.1 * lasted_s.max()
    assert json.loads((tmp_path / "out.json").read_text())["ended"] == "job ended"


def test_a_dry_run_sets_nothing(plan):
    with wn.apply(plan, rank=0, dry_run=True) as applied:
        for step in PlanGraph(plan).steps(0):
            applied.instruction(step.instruction.name, step.instruction.micro_batch)
        time.sleep(0.05)
        assert applied.gpus[0].engine.requested == AUTO
        assert applied.status().gpus[0].target_core_mhz is not None


def test_an_instruction_that_the_plan_lacks_ends_it(plan):
    with wn.apply(plan, rank=0) as applied:
        applied.instruction("forward", 0)
        applied.instruction("forward", 7)
        time.sleep(0.2)
        assert applied.gpus[0].engine.requested == AUTO
    assert applied.summary.ended == "refused"
    assert "rank 0 runs forward of micro-batch 7" in [event.text for event in applied.summary.status.events][1]


def test_a_program_that_fails_gives_the_clocks_back(plan):
    with pytest.raises(ZeroDivisionError), wn.apply(plan, rank=0) as applied:
        applied.instruction("forward", 0)
        time.sleep(0.1)
        raise ZeroDivisionError
    assert applied.gpus[0].engine.requested == AUTO and applied.summary.ended == "failed"


def test_ranks_are_told_by_what_started_them(plan):
    torchrun = {"RANK": "5", "WORLD_SIZE": "8"}
    assert (
        pipeline_rank(8, None, torchrun) == 5
        and pipeline_rank(4, None, torchrun) == 2
        and pipeline_rank(4, 3, torchrun) == 3
    )
    assert pipeline_rank(1, None, {}) == 0
    for ranks, given, environment, words in (
        (4, 4, {}, "the plan has ranks 0 to 3"),
        (3, None, torchrun, "WORLD_SIZE is 8"),
        (4, None, {}, "which of the plan's 4 ranks is this"),
    ):
        with pytest.raises(BadInputError, match=words):
            pipeline_rank(ranks, given, environment)
    with pytest.raises(BadInputError, match="which of the plan's 2 ranks"):
        wn.apply(plan).__enter__()


def test_megatron_says_which_rank_it_is(monkeypatch):
    class State:
        model_parallel_is_initialized = staticmethod(lambda: True)
        get_pipeline_model_parallel_rank = staticmethod(lambda: 2)

    monkeypatch.setitem(__import__("sys").modules, "megatron.core.parallel_state", State)
    assert pipeline_rank(4, None, {"RANK": "0", "WORLD_SIZE": "4"}) == 2
    State.model_parallel_is_initialized = staticmethod(lambda: False)
    assert pipeline_rank(4, None, {"RANK": "0", "WORLD_SIZE": "4"}) == 0


def test_what_is_a_pipelines_plan(plan, tmp_path):
    path = tmp_path / "a.json"
    for text, is_one in (("", False), ("{}", False), ("[]", False), ('{"schema": "wastenot.plan/3"}', False)):
        path.write_text(text)
        assert is_pipeline_plan(path) is is_one
    assert not is_pipeline_plan(tmp_path / "absent") and not is_pipeline_plan(7)
    plan.write(path)
    assert is_pipeline_plan(path) and is_pipeline_plan(plan) and ranks_of(path) == ranks_of(plan) == 2
    path.write_text('{"schema": "wastenot.pipeline/1"}')
    with pytest.raises(BadInputError, match="without ranks"):
        ranks_of(path)
    assert os.path.exists(path)


def test_markers_of_instructions():
    assert parse_instruction("forward:3") == ("forward", 3, None)
    assert parse_instruction("backward_input:0:12") == ("backward_input", 0, 12)
    for other in ("iteration", "backward", "backward:x", "a:1:2:3"):
        assert parse_instruction(other) is None


def test_a_plan_fits_other_cards_of_its_model_and_no_other_model():
    made = SimpleNamespace(device="NVIDIA H200 GPU-00aa-11")
    for unique_id, note in (
        ("GPU-00aa-11", None),
        ("GPU-00bb-22", "p: was made on another card of this model, GPU-00aa-11"),
    ):
        card = Identity("nvidia:0", "NVIDIA H200", unique_id, "driver 580", "measured", unique_name=False)
        assert check_pipeline_card(made, "p", card) == note
    with pytest.raises(BadInputError, match="is a plan for NVIDIA H200, and nvidia:0 is NVIDIA A100"):
        check_pipeline_card(made, "p", Identity("nvidia:0", "NVIDIA A100", "GPU-1", "driver 580", "measured"))
