"""Callbacks in the real trainers, where these are installed: what reaches a session."""

import os
import time

import pytest

from testbed.heard_markers import HeardMarkers
from wastenot.control.session import Session
from wastenot.control.wire import VARIABLE

torch = pytest.importorskip("torch")


@pytest.fixture
def driver(tmp_path, monkeypatch):
    driven = HeardMarkers()
    with Session(driven, tmp_path / "s.sock", lease=False) as session:
        monkeypatch.setenv(VARIABLE, str(session.path))
        yield driven
        session.end()


def whole(driver, iterations):
    """Once all has come: the names of one iteration in the middle."""
    end_s = time.monotonic() + 60.0
    while driver.names().count("optimizer") < iterations:
        assert time.monotonic() < end_s, driver.names()
        time.sleep(0.01)
    assert driver.iterations() == list(range(iterations))
    return [marker.name for marker in driver.markers if marker.iteration == iterations // 2]


def test_transformers(driver, tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from wastenot.programs.callbacks.transformers import ApplyPlan

    config = transformers.GPT2Config(
        n_layer=3, n_embd=16, n_head=2, vocab_size=50, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(12)]
    trainer = transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config),
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=1, gradient_accumulation_steps=2, max_steps=6,
            report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
        ),
        train_dataset=rows,
        callbacks=[ApplyPlan("plan.json")],
    )  # fmt: skip
    trainer.train()
    assert whole(driver, 6) == ["iteration", *2 * ["forward", "loss", "backward"], "optimizer"]


def test_lightning(lightning, driver, tmp_path):
    from wastenot.programs.callbacks.lightning import ApplyPlan

    class Module(lightning.LightningModule):  # type: ignore[name-defined]
        def __init__(self):
            super().__init__()
            self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
            self.loss = torch.nn.MSELoss()

        def training_step(self, batch, index):
            return self.loss(self.model(batch), batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(
        max_steps=6, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, callbacks=[ApplyPlan("plan.json")],
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=2))
    assert whole(driver, 6) == ["iteration", "forward", "loss", "backward", "optimizer"]


def test_accelerate(driver):
    accelerate = pytest.importorskip("accelerate")
    from wastenot.programs.callbacks.accelerate import applied_plan

    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with applied_plan("plan.json", model, optimizer):
        for _ in range(6):
            accelerator.backward(model(torch.randn(2, 4)).square().mean())
            optimizer.step()
            optimizer.zero_grad()
    assert whole(driver, 6) == ["iteration", "forward", "loss", "backward", "optimizer"]


def test_by_hand(driver):
    import wastenot as wn

    with wn.apply("plan.json") as applied:
        for _ in range(3):
            applied.iteration()
            with applied.phase("forward"):
                pass
            applied.phase("optimizer")
    assert whole(driver, 3) == ["iteration", "forward", "optimizer"]
    assert os.environ[VARIABLE]
