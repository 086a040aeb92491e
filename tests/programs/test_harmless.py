"""No fault of ours ends a program: it is told once, the clocks are reset, and the program goes on."""

import os

import pytest

import wastenot as wn
from testbed.heard_markers import HeardMarkers
from testbed.pipeline_runs import made_profile, planned
from wastenot.control.hooks import Hooks
from wastenot.control.markers import Markers
from wastenot.control.rank import Rank
from wastenot.control.session import Session
from wastenot.control.wire import VARIABLE
from wastenot.core.setting import AUTO

torch = pytest.importorskip("torch")
SAID = "wastenot: RuntimeError: a fault of ours; the program continues without the plan, at the default clocks\n"
HOOKS = (
    "_model_begins",
    "_model_ends",
    "_gradient_comes",
    "_backward_comes_to",
    "_step_begins",
    "_step_ends",
    "_any_step_ends",
)


def broken(*_, **__):
    raise RuntimeError("a fault of ours")


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.setenv("WASTENOT_RUNTIME", str(tmp_path / "run"))
    for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", VARIABLE):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def session(tmp_path, monkeypatch):
    """Whoever controls the clocks."""
    with Session(HeardMarkers(), tmp_path / "s.sock", lease=False) as listening:
        monkeypatch.setenv(VARIABLE, str(listening.path))
        yield listening
        listening.end()


@pytest.fixture(scope="module")
def pipeline():
    return planned(made_profile(2, forward_s=0.06), 3, slower=0.1)


def train(steps=3):
    """A few steps; returns the parameters that came of it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_fails_costs_the_plan_and_not_the_training(session, monkeypatch, capsys, hook):
    alone = train()
    monkeypatch.setattr(Hooks, hook, broken)
    rank = Rank(os.environ[VARIABLE], torch)
    rank.watch_everything()
    try:
        trained = train(5)
    finally:
        rank._hooks.detach()
    assert not torch.equal(trained, alone) and torch.equal(trained, train(5))
    assert rank.harmless.broken == bool(capsys.readouterr().err)
    if hook not in ("_gradient_comes", "_backward_comes_to"):  # whether these are reached depends on the layers found
        assert rank.harmless.broken


@pytest.mark.parametrize(("what", "name"), [(Rank, "mark"), (Rank, "watch"), (Markers, "record")])
def test_what_a_program_calls_costs_the_plan_and_not_the_program(session, monkeypatch, capsys, what, name):
    monkeypatch.setattr(what, name, broken)
    with wn.apply("plan.json") as applied:
        applied.watch(torch.nn.Linear(1, 1))
        for _ in range(3):
            applied.iteration()
            with applied.phase("forward"):
                pass
    assert capsys.readouterr().err.count("a fault of ours") == 1


def test_marks_of_another_kind_of_plan_are_told_once(session, capsys):
    with wn.apply("plan.json") as applied:
        for _ in range(3):
            applied.instruction("forward", 0)
            applied.watch_pipelining()
    said = capsys.readouterr().err
    assert said.startswith("wastenot: the applied plan is not for a pipeline") and said.count("\n") == 1


def test_a_fault_gives_the_clocks_of_its_own_session_back(pipeline, monkeypatch, capsys):
    monkeypatch.setattr(Rank, "instruct", broken)
    with wn.apply(pipeline, rank=0) as applied:
        for _ in range(3):
            applied.instruction("forward", 0)
        assert applied.gpus[0].engine.requested == AUTO and applied.summary.ended == "failed"
    assert capsys.readouterr().err == SAID


def test_what_cannot_be_written_in_the_end_is_told(pipeline, tmp_path, capsys):
    with wn.apply(pipeline, rank=0, out=tmp_path / "no" / "run.json") as applied:
        applied.instruction("forward", 0)
    assert applied.summary.ended == "job ended"
    assert "no/run.json" in capsys.readouterr().err


def test_a_program_that_only_reports_has_a_summary_too(session):
    with wn.apply("plan.json") as applied:
        applied.iteration()
    assert applied.summary.ended == "job ended" and applied.summary.time_line == ()


@pytest.mark.parametrize("fault", ["no/plan.json", None])
def test_a_trainers_callback_never_ends_training(tmp_path, monkeypatch, capsys, fault):
    pytest.importorskip("transformers")
    from wastenot.programs.callbacks.transformers import ApplyPlan

    callback = ApplyPlan(fault or "plan.json")
    if fault is None:
        monkeypatch.setattr("wastenot.programs.apply.apply.__enter__", broken)
    callback.on_train_begin(None, None, None)
    for _ in range(2):
        callback.on_step_begin(None, None, None, model=torch.nn.Linear(1, 1), optimizer=None)
    callback.on_train_end(None, None, None)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "the program continues without the plan" in said
    assert callback.applied is None
