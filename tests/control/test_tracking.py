"""What a plan saves in TensorBoard, W&B and MLflow: real writers, read back."""

import json
import time

import pytest

from testbed.applied import GPU, NO_PROOF, status
from wastenot.control.tracking import scalars, tracker
from wastenot.core.errors import BadInputError, DeviceError


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


class Writer:
    def __init__(self):
        self.seen = []

    def add_scalar(self, name, value, step):
        self.seen.append((name, value, step))

    @property
    def steps(self):
        return list(dict.fromkeys(step for _, _, step in self.seen))


def test_what_is_logged_is_the_status():
    values = scalars(status(origin="measured"))
    assert values["wastenot/saved_j"] == 4_200.0
    assert (values["wastenot/time_change_low"], values["wastenot/time_change_high"]) == (-0.001, 0.003)
    assert values["wastenot/power_w/sim:rtx-3080-ti"] == 289.5


def test_what_is_not_known_is_left_out():
    values = scalars(status(proof=NO_PROOF, gpus=(GPU.model_copy(update={"power_w": None, "target_core_mhz": None}),)))
    assert not any("saved" in name or "power" in name or "target" in name for name in values)


def test_what_is_not_measured_says_so():
    assert all(name.startswith("wastenot (simulated)/") for name in scalars(status()))
    assert all(name.startswith("wastenot/") for name in scalars(status(origin="measured")))


def test_not_every_step_is_logged():
    clock, writer, asked = Clock(), Writer(), []
    log = tracker(lambda: asked.append(1) or status(), writer, every_s=10.0, now_s=clock)
    for step in range(60):
        log(step)
        clock.now_s += 0.5
    assert writer.steps == [0, 20, 40]
    assert len(asked) == 3  # the status is only made where it is logged


def test_a_plan_that_is_gone_does_not_end_the_job():
    def gone():
        raise DeviceError("the session does not answer")

    writer = Writer()
    tracker(gone, writer, every_s=0.0)(1)
    assert writer.seen == []


def test_several_writers_at_once():
    one, other = Writer(), Writer()
    tracker(status, one, other)(7)
    assert one.seen == other.seen != []


def test_a_run_that_logs_dictionaries_is_given_what_a_writer_is():
    class Run:
        def define_metric(self, name):
            raise AssertionError("none is defined")

        def log(self, values, step):
            self.seen = values, step

    writer, run = Writer(), Run()
    tracker(status, writer, run)(7)
    assert run.seen == ({name: value for name, value, _ in writer.seen}, 7)


@pytest.mark.parametrize(("writers", "said"), [((), "none given"), ((object(),), "object is none of these")])
def test_a_writer_of_another_kind_is_refused(writers, said):
    with pytest.raises(BadInputError, match=said):
        tracker(status, *writers)


def test_tensorboard_reads_it_back(tmp_path):
    pytest.importorskip("tensorboard", reason="no TensorBoard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        log = tracker(status, writer, every_s=0.0)
        for step in (5, 6):
            log(step)
    events = EventAccumulator(str(tmp_path)).Reload()
    read = events.Scalars("wastenot (simulated)/saved_j_low")
    assert [(each.step, each.value) for each in read] == [(5, 3_900.0), (6, 3_900.0)]


@pytest.mark.slow
def test_wandb_keeps_it_beside_what_the_program_logs(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="no W&B")
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    run = wandb.init(mode="offline", project="wastenot", settings=wandb.Settings(silent=True, console="off"))
    log = tracker(status, run, every_s=0.0)
    for step in range(3):
        run.log({"loss": 1.0 - 0.1 * step}, step=step)
        log(step)
    run.finish()
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    deadline = time.monotonic() + 30.0
    while len(rows := _history(file)) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)  # a process of W&B's still writes after finish
    assert [row["_step"] for row in rows] == [0, 1, 2]
    assert [row["loss"] for row in rows] == pytest.approx([1.0, 0.9, 0.8])
    assert [row["wastenot (simulated)/saved_j"] for row in rows] == [4_200.0] * 3


@pytest.mark.slow
def test_mlflow_reads_it_back(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="no MLflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("training")
    with mlflow.start_run() as run:
        log = tracker(status, mlflow, every_s=0.0)
        for step in (5, 6):
            mlflow.log_metric("loss", 0.5, step=step)
            log(step)
    client = mlflow.MlflowClient()
    read = client.get_metric_history(run.info.run_id, "wastenot simulated/saved_j_low")
    assert [(each.step, each.value) for each in read] == [(5, 3_900.0), (6, 3_900.0)]
    assert "wastenot simulated/power_w/sim:rtx-3080-ti" in client.get_run(run.info.run_id).data.metrics


def _history(file):
    """Rows that W&B wrote offline: records of protocol buffers in LevelDB's log format, after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, block = file.read_bytes(), 32_768
    rows, parts, at = [], b"", 7
    while at + 7 <= len(content):
        if block - at % block < 7:  # too little room for a header: the block is padded
            at += block - at % block
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        if at + 7 + length > len(content):  # being written
            break
        parts = content[at + 7 : at + 7 + length] if kind in (1, 2) else parts + content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = Record()
            record.ParseFromString(parts)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                rows.append({each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in items})
    return rows
