"""No fault of ours ends a program: it is told once, the clocks are reset, and the program continues."""

import importlib
import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

import wastenot as wn
from testbed.applied import summary
from testbed.heard_markers import HeardMarkers
from testbed.pipeline_runs import made_profile, planned
from wastenot.control.harmless import Harmless
from wastenot.control.hooks import Hooks
from wastenot.control.markers import Markers
from wastenot.control.rank import Rank
from wastenot.control.session import Session
from wastenot.control.wire import VARIABLE
from wastenot.core.setting import AUTO
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.run.following_run import FollowingRun
from wastenot.jobs.run.meter import JobMeter
from wastenot.jobs.tables.run_in_flight import RunInFlight
from wastenot.programs import apply as applying
from wastenot.programs.apply import Applied

torch = pytest.importorskip("torch")
SAID = "wastenot: RuntimeError: a fault of ours; the program continues without the plan, at the default clocks\n"
HOOKS = [name for name, value in vars(Hooks).items() if callable(value) and not name.startswith("__")]
NOT_REACHED = (  # in this training; whether some are depends on the layers found
    "_gradient_comes",
    "_backward_comes_to",
    "_in_recomputation",
    "_layers_are_back",
    "configure",
    "detach",
    "seen",
)


def broken(*_, **__):
    raise RuntimeError("a fault of ours")


@pytest.fixture(autouse=True)
def alone(monkeypatch, runtime):
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
    rank = Rank(os.environ[VARIABLE], torch)
    with monkeypatch.context() as faulty:
        faulty.setattr(Hooks, hook, broken)
        rank.harmless.call(rank.watch_everything)
        trained = train(5)
        rank.harmless.call(rank.close)
    said = capsys.readouterr().err
    if rank._hooks is not None:
        rank._hooks.detach()
    assert not torch.equal(trained, alone) and torch.equal(trained, train(5))
    assert said == (SAID if rank.harmless.broken else "")
    if hook not in NOT_REACHED:
        assert rank.harmless.broken


@pytest.mark.parametrize(
    ("what", "name"),
    [(Rank, "mark"), (Rank, "watch"), (Rank, "watch_everything"), (Rank, "close"), (Markers, "record"),
     (Applied, "_ask_status"), (Applied, "_end")],
)  # fmt: skip
def test_what_a_program_calls_costs_the_plan_and_not_the_program(session, monkeypatch, capsys, what, name):
    monkeypatch.setattr(what, name, broken)
    with wn.apply("plan.json") as applied:
        applied.watch(torch.nn.Linear(1, 1))
        for _ in range(3):
            applied.iteration()
            with applied.phase("forward"):
                pass
            assert applied.status().proof.energy_change is None or name != "_ask_status"
    monkeypatch.undo()
    applied._rank.close()
    assert capsys.readouterr().err.count("a fault of ours") == 1
    assert applied.summary is not None or name == "_end"


def test_a_program_outlives_the_session_that_it_reports_to(session, capsys):
    with wn.apply("plan.json") as applied:
        applied.iteration()
        before = applied.status()
        session.end()
        for _ in range(2):
            applied.iteration()
            assert applied.status() == before
    said = capsys.readouterr().err
    assert said.count("the session that controls the clocks does not answer") == 1
    assert applied.summary.status == before and applied.summary.ended == "job ended"


def test_a_program_whose_session_is_gone_before_it_begins_trains_all_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone.sock"))
    alone = train(5)
    with wn.apply("plan.json") as applied:
        assert torch.equal(train(5), alone)
        applied.iteration()
        assert applied.status().iteration is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "gone.sock: the session that controls the clocks does not answer" in said
    assert applied.summary.status.proof.saved_j is None and applied.summary.status.gpus == ()


def test_what_fails_while_a_session_begins_gives_the_clocks_back(pipeline, monkeypatch):
    monkeypatch.setattr(Rank, "connect", broken)
    begun = wn.apply(pipeline, rank=0)
    with pytest.raises(RuntimeError, match="a fault of ours"), begun:
        raise AssertionError("it has not begun")
    assert begun._session.end().ended == "failed"


@pytest.mark.parametrize("fault", ["status", "writer"])
def test_a_tracker_that_fails_is_told_once(fault, capsys):
    class Writer:
        add_scalar = broken

    log = wn.tracker(broken if fault == "status" else lambda: summary().status, Writer(), every_s=0.0)
    for step in range(3):
        log(step)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "a fault of ours; nothing more is logged" in said


@pytest.mark.parametrize(
    "what",
    ["JobMeter.epoch", "JobMeter.resume", "JobMeter.end", "RunInFlight.count", "RunInFlight.save", "RunInFlight.end",
     "RunInFlight.abandon", "Learner.goes_on"],
)  # fmt: skip
def test_a_job_that_fails_ends_no_training(tmp_path, monkeypatch, capsys, what):
    name, _, method = what.partition(".")
    epochs = 0
    job = wn.job("nightly", study=tmp_path / "jobs.db", batch_sizes=[4], default=4, target=0.9, device="cpu")
    with job as run, monkeypatch.context() as faulty:
        faulty.setattr({"JobMeter": JobMeter, "RunInFlight": RunInFlight, "Learner": Learner}[name], method, broken)
        while run.epoch(0.5 * epochs) and epochs < 6:
            epochs += 1
        run.leave(None)
    assert epochs in (2, 6) and capsys.readouterr().err.count("a fault of ours") <= 1


def test_a_rank_that_cannot_read_the_study_trains_on(tmp_path, monkeypatch, capsys):
    run = object.__new__(FollowingRun)
    run._unheard, run._meter, run._reported = Harmless(consequence="training continues"), None, 0
    monkeypatch.setattr(FollowingRun, "_first_goes_on", broken)
    assert run.epoch() and run.epoch() and capsys.readouterr().err.count("a fault of ours") == 1
    monkeypatch.setattr(FollowingRun, "_first_goes_on", lambda self: False)
    assert not run.epoch()
    monkeypatch.setattr(FollowingRun, "_leave", broken)
    run.leave(None)


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


LIBRARIES = {
    "transformers": ["transformers"],
    "lightning": ["lightning", "lightning.pytorch", "lightning.pytorch.callbacks"],
    "accelerate": ["accelerate", "accelerate.optimizer"],
}


def callbacks_of(monkeypatch, room, library):
    """The callbacks of a library that need not be installed, and takes long to import: what they inherit does nothing."""
    stub = ModuleType("stub")
    stub.TrainerCallback = stub.Callback = object
    stub.AcceleratedOptimizer = type("AcceleratedOptimizer", (), {})
    for name in LIBRARIES[library]:
        monkeypatch.setitem(sys.modules, name, stub)
    name = f"wastenot.{room}.callbacks.{library}"
    monkeypatch.setitem(sys.modules, name, stub)  # whoever comes next has the real one again
    del sys.modules[name]
    return importlib.import_module(name)


def train_with(callback, library):
    """All that a trainer calls of a callback, around a real training."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    control = SimpleNamespace(should_training_stop=False)
    trainer = SimpleNamespace(
        optimizers=[optimizer], should_stop=False, sanity_checking=False, state=SimpleNamespace(fn="fit"),
        callback_metrics={"accuracy": 0.5},
    )  # fmt: skip
    called = []
    for name in [name for name in vars(type(callback)) if name.startswith("on_")]:
        called.append(name)
        for _ in range(2):
            if library == "transformers":
                getattr(callback, name)(
                    SimpleNamespace(eval_strategy="epoch"), None, control, model=model, optimizer=optimizer,
                    metrics={"accuracy": 0.5},
                )  # fmt: skip
            else:
                more = (
                    [optimizer] if name == "on_before_optimizer_step" else [ValueError()] if name == "on_exception" else []
                )
                getattr(callback, name)(trainer, model, *more)
            train(1)
    return called


@pytest.mark.parametrize("library", ["transformers", "lightning"])
@pytest.mark.parametrize(
    "fault", ["plan", "device", "apply.__enter__", "apply.__exit__", "Applied.watch", "Applied.phase", "Rank.connect"]
)
def test_a_plans_callback_never_ends_training(pipeline, monkeypatch, capsys, library, fault):
    plan = "no/plan.json" if fault == "plan" else pipeline
    device = "nvidia:77" if fault == "device" else "sim:h200"
    kind = callbacks_of(monkeypatch, "programs", library).ApplyPlan
    callback = kind(plan, device=device, rank=None if fault == "plan" else 0)
    name, _, method = fault.partition(".")
    if method:
        monkeypatch.setattr({"apply": applying.apply, "Applied": Applied, "Rank": Rank}[name], method, broken)
    called = train_with(callback, library)
    assert len(called) >= 3
    said = capsys.readouterr().err
    reached = fault != "Applied.phase" or library == "lightning"
    assert said.count("the program continues without the plan") == reached, said
    if fault in ("plan", "device", "apply.__enter__", "Rank.connect"):
        assert callback.applied is None
    if fault == "apply.__exit__":
        monkeypatch.undo()
        callback._apply.__exit__(None, None, None)


@pytest.mark.parametrize("library", ["transformers", "lightning"])
@pytest.mark.parametrize("metric", ["accuracy", None])
def test_a_jobs_callback_never_ends_training(monkeypatch, capsys, library, metric):
    callback = callbacks_of(monkeypatch, "jobs", library).ReportEpochs(SimpleNamespace(epoch=broken), metric)
    train_with(callback, library)
    assert capsys.readouterr().err.count("a fault of ours; training continues") == 1


def test_accelerate_trains_without_a_plan_that_cannot_begin(monkeypatch, capsys):
    applied_plan = callbacks_of(monkeypatch, "programs", "accelerate").applied_plan
    model = torch.nn.Linear(1, 1)
    with applied_plan("no/plan.json", model, torch.optim.SGD(model.parameters(), lr=0.1)) as applied:
        applied.iteration()
        applied.phase("backward")
        applied.watch_pipelining()
        assert applied.status().iteration is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no/plan.json" in said and "continues without the plan" in said
    assert applied.summary.ended == "failed"
