"""The callbacks of jobs in the real trainers, where these are installed.

They stand beside those of plans, as importing the trainers takes longer than all these tests: one process does it for both.
"""

import re

import pytest

import wastenot as wn
from wastenot.jobs.tables.store import JobStore
from wastenot.study.store import open_study

torch = pytest.importorskip("torch")


@pytest.fixture
def study(tmp_path):
    return str(tmp_path / "jobs.db")


def job_of(study, **terms):
    terms = {"target": 0.9, "batch_sizes": [2, 4], "default": 4} | terms
    return wn.job("nightly", study=study, device="cpu", learning_rate_scaling="linear", **terms)


def runs_of(study):
    return [
        (run.batch_size, run.outcome, run.epochs, run.metric) for run in JobStore(open_study(study)).read("nightly").runs
    ]


class Rises:
    """A metric that rises with every evaluation, and counts them."""

    def __init__(self, by):
        self.by, self.seen = by, 0

    def __call__(self, *_):
        self.seen += 1
        return {"accuracy": self.by * self.seen}


class TestTransformers:
    def trained(self, run, rises, tmp_path, *, metric="eval_accuracy", eval_strategy="epoch", epochs=10):
        transformers = pytest.importorskip("transformers")
        pytest.importorskip("accelerate")
        from wastenot.jobs.callbacks.transformers import ReportEpochs

        config = transformers.GPT2Config(
            n_layer=1, n_embd=16, n_head=2, vocab_size=50, n_positions=16, bos_token_id=0, eos_token_id=0
        )
        rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(4)]
        trainer = transformers.Trainer(
            model=transformers.GPT2LMHeadModel(config),
            args=transformers.TrainingArguments(
                output_dir=str(tmp_path), per_device_train_batch_size=run.batch_size, num_train_epochs=epochs,
                learning_rate=run.learning_rate(1e-3), eval_strategy=eval_strategy, report_to=[], use_cpu=True,
                save_strategy="no", disable_tqdm=True,
            ),
            train_dataset=rows,
            eval_dataset=rows,
            compute_metrics=rises,
            callbacks=[ReportEpochs(run, metric)],
        )  # fmt: skip
        trainer.train()
        return trainer

    def test_training_ends_at_the_target(self, study, tmp_path):
        with job_of(study) as run:
            trainer = self.trained(run, Rises(0.31), tmp_path)
            assert (run.outcome, trainer.state.epoch, trainer.state.max_steps) == ("reached", 3.0, 10)
            trainer.evaluate()  # after training, which is not the job's
        assert runs_of(study) == [(4, "reached", 3, pytest.approx(0.93))]

    def test_a_trainer_that_ends_by_itself_has_missed_the_target(self, study, tmp_path):
        with job_of(study) as run:
            self.trained(run, Rises(0.31), tmp_path, epochs=2)
        assert runs_of(study) == [(4, "missed", 2, pytest.approx(0.62))]

    def test_without_a_target_the_trainer_decides(self, study, tmp_path):
        with job_of(study, target=None) as run:
            self.trained(run, Rises(0.31), tmp_path, metric=None, eval_strategy="no", epochs=2)
        assert runs_of(study) == [(4, "reached", 2, None)]

    @pytest.mark.parametrize(
        ("changed", "words"),
        [({"metric": "accuracy"}, "is not among what the Trainer reports: .*eval_accuracy"),
         ({"eval_strategy": "no"}, "eval_strategy='epoch'")],
    )  # fmt: skip
    def test_a_metric_that_never_comes_is_told_and_ends_no_training(self, study, tmp_path, capsys, changed, words):
        with job_of(study) as run:
            self.trained(run, Rises(0.31), tmp_path, epochs=2, **changed)
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("wastenot: metric")]
        assert len(said) == 1 and re.search(words, said[0]) and said[0].endswith("the job learns nothing more from this run")
        assert [each[1] for each in runs_of(study)] == ["failed"]


class TestLightning:
    def trained(self, lightning, run, rises, tmp_path, *, metric="val_accuracy", epochs=10):
        from wastenot.jobs.callbacks.lightning import ReportEpochs

        class Module(lightning.LightningModule):  # type: ignore[name-defined]
            def __init__(self):
                super().__init__()
                self.model, self.loss = torch.nn.Linear(4, 4), torch.nn.MSELoss()

            def training_step(self, batch, index):
                return self.loss(self.model(batch), batch)

            def validation_step(self, batch, index):
                pass

            def on_validation_epoch_end(self):
                if not self.trainer.sanity_checking:
                    self.log("val_accuracy", rises()["accuracy"])

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=run.learning_rate(0.1))

        trainer = lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=tmp_path, callbacks=[ReportEpochs(run, metric)],
        )  # fmt: skip
        data = torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=run.batch_size)
        trainer.fit(Module(), data, data)
        return trainer

    def test_training_ends_at_the_target(self, lightning, study, tmp_path):
        with job_of(study) as run:
            trainer = self.trained(lightning, run, Rises(0.31), tmp_path)
            assert (run.outcome, trainer.global_step) == ("reached", 9)
        assert runs_of(study) == [(4, "reached", 3, pytest.approx(0.93))]

    def test_without_a_target_the_trainer_decides(self, lightning, study, tmp_path):
        with job_of(study, target=None) as run:
            self.trained(lightning, run, Rises(0.31), tmp_path, metric=None, epochs=2)
        assert runs_of(study) == [(4, "reached", 2, None)]

    def test_a_metric_that_is_not_logged_is_told_and_ends_no_training(self, lightning, study, tmp_path, capsys):
        with job_of(study) as run:
            self.trained(lightning, run, Rises(0.31), tmp_path, metric="accuracy", epochs=2)
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("wastenot: metric")]
        assert len(said) == 1 and re.search("is not among what the module logs: .*val_accuracy", said[0])
        assert said[0].endswith("the job learns nothing more from this run")
        assert [each[1] for each in runs_of(study)] == ["failed"]
