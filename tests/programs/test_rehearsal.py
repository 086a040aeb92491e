"""Training scripts of one's own, rehearsed on the CPU beside simulated GPUs: plain, and in trainers of other libraries."""

import json
import os
import subprocess
import sys

import pytest

import wastenot as wn
from testbed.applied_programs import make_plan
from testbed.heard_markers import HeardMarkers
from wastenot.control.session import Session
from wastenot.control.wire import VARIABLE, Line, hello

torch = pytest.importorskip("torch")

SIMULATED = "sim:h200"
PASSES = {"forward", "loss", "backward", "optimizer"}
STEPS = 12

SCRIPT = """
import sys
from contextlib import nullcontext
import torch
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(3)))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
context = nullcontext()
if len(sys.argv) > 1:
    import wastenot as wn
    context = wn.apply(sys.argv[1])
with context as applied:
    for _ in range(20):
        model(torch.ones(2, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
print("trained" if applied is None else f"trained {len(applied.summary.status.gpus)}", flush=True)
torch.distributed.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch, runtime):
    for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", VARIABLE):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """A plan of one setting, made on a simulated GPU."""
    return str(make_plan(tmp_path_factory.mktemp("plans"), None, device=SIMULATED))


def two_layers():
    return torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(2)))


def check(summary, said):
    """All is seen, the plan's clocks were requested, and no saving is claimed."""
    status = summary.status
    seen = status.rehearsal
    assert summary.ended == "job ended" and status.origin == "simulated"
    assert seen.iterations[0] in (STEPS - 1, STEPS) and seen.passes.keys() == PASSES and seen.missing == ()
    assert seen.requests >= 1 and status.proof.saved_j is None and status.gpus[0].energy_j is None
    assert [event.kind for event in status.events] == ["started", "ended"]
    assert said.count("this was a rehearsal") == 1 and "Savings were not measured" in said


def test_plain_pytorch(plan, tmp_path, capsys):
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with wn.apply(plan, device=SIMULATED, out=tmp_path / "run.json") as applied:
        for _ in range(STEPS):
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
    check(applied.summary, capsys.readouterr().err)
    assert json.loads((tmp_path / "run.json").read_text())["status"]["rehearsal"]["layers"] == 2


def test_a_dry_run_requests_nothing(plan):
    with wn.apply(plan, device=SIMULATED, dry_run=True) as applied:
        for _ in range(STEPS):
            applied.iteration()
            with applied.phase("forward"):
                pass
    seen = applied.summary.status.rehearsal
    assert seen.iterations == (STEPS,) and seen.requests == 0 and seen.missing == ("loss", "backward")


def test_whatever_gpu_the_program_runs_on_the_simulated_one_follows_it(tmp_path):
    driven = HeardMarkers()
    driven.gpus[0].identity.name = SIMULATED
    with Session(driven, tmp_path / "s.sock", lease=False) as session:
        line = Line.to(str(session.path))
        assert line.ask(hello("torch"))["welcome"]
        line.send({"gpu": "GPU-of-another-kind"})
        line.send({"markers": ["iteration"], "at_s": 1.0})
        line.ask({"ask": "status"})  # all before is taken in by then
        line.close()
        session.end()
    assert driven.names() == ["iteration"]


@pytest.mark.slow  # it imports the library
def test_transformers(plan, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from wastenot.programs.callbacks.transformers import ApplyPlan

    config = transformers.GPT2Config(
        n_layer=2, n_embd=16, n_head=2, vocab_size=50, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    callback = ApplyPlan(plan, device=SIMULATED)
    trainer = transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config),
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=1, max_steps=STEPS, report_to=[], use_cpu=True,
            save_strategy="no", disable_tqdm=True,
        ),
        train_dataset=[{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(STEPS)],
        callbacks=[callback],
    )  # fmt: skip
    trainer.train()
    check(callback.applied.summary, capsys.readouterr().err)


@pytest.mark.slow  # it imports the library
def test_accelerate(plan, capsys):
    accelerate = pytest.importorskip("accelerate")
    from wastenot.programs.callbacks.accelerate import applied_plan

    accelerator, model = accelerate.Accelerator(cpu=True), two_layers()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with applied_plan(plan, model, optimizer, device=SIMULATED) as applied:
        for _ in range(STEPS):
            accelerator.backward(model(torch.randn(2, 4)).square().mean())
            optimizer.step()
            optimizer.zero_grad()
    check(applied.summary, capsys.readouterr().err)


@pytest.mark.slow  # it imports the library
def test_lightning(lightning, plan, tmp_path, capsys):
    from wastenot.programs.callbacks.lightning import ApplyPlan

    class Module(lightning.LightningModule):  # type: ignore[name-defined]
        def __init__(self):
            super().__init__()
            self.model, self.loss = two_layers(), torch.nn.MSELoss()

        def training_step(self, batch, index):
            return self.loss(self.model(batch), batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = ApplyPlan(plan, device=SIMULATED)
    trainer = lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, callbacks=[callback],
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(2 * STEPS, 4), batch_size=2))
    check(callback.applied.summary, capsys.readouterr().err)


def run(folder, *command):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py")


@pytest.mark.slow  # processes that import PyTorch
@pytest.mark.parametrize("gpus", [1, 2])
def test_every_process_of_torchrun(plan, tmp_path, gpus):
    (tmp_path / "train.py").write_text(SCRIPT)
    devices = ",".join([SIMULATED] * gpus)
    apply = ("-m", "wastenot", "apply", plan, "--device", devices, "--out", "run.json", "--", sys.executable)
    done = run(tmp_path, *apply, *TORCHRUN)
    seen = json.loads((tmp_path / "run.json").read_text())["status"]["rehearsal"]
    assert seen["iterations"] == [19] * gpus and seen["missing"] == [] and seen["requests"] >= gpus
    assert done.stdout.count("trained") == 2
    assert ("2 processes train, and clocks were requested for 1 of them" in done.stderr) == (gpus == 1)


@pytest.mark.slow  # likewise
def test_ranks_that_apply_it_themselves(plan, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run(tmp_path, *TORCHRUN, plan)
    assert done.stdout.count("trained 2") == 2  # two processes write it: their line ends may come together
    assert "the hooks saw 19 and 19 iterations" in done.stderr and "does not answer" not in done.stderr, done.stderr
