import math
from pathlib import Path

import pytest

from wastenot.core.errors import BadInputError
from wastenot.jobs.judge.trace import JobKey, read_training_summaries

TRAIN = """dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch
digits,mlp,8,sgd,0.1,1,0.5,2
digits,mlp,8,sgd,0.1,1,0.9,7
digits,mlp,8,sgd,0.1,2,0.9,nan
digits,mlp,16,sgd,0.1,1,0.9,
digits,mlp,32,sgd,0.1,1,0.9,9
"""
POWER = """dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power
digits,mlp,8,sgd,100,3,90
digits,mlp,8,sgd,200,2,150
digits,mlp,16,sgd,100,2,95
digits,mlp,16,sgd,200,1,160
"""
DIGITS = JobKey("digits", "mlp", "sgd")


def _files(folder: Path, train: str = TRAIN, power: str = POWER) -> tuple[Path, Path]:
    files = folder / "train.csv", folder / "power.csv"
    for path, text in zip(files, (train, power), strict=True):
        path.write_text(text)
    return files


def test_both_files_make_a_trace(tmp_path: Path) -> None:
    read = read_training_summaries(*_files(tmp_path))
    assert read.jobs() == (DIGITS,)
    assert read.targets(DIGITS) == (0.5, 0.9)
    assert read.longest(DIGITS) == 9
    trace = read.trace(DIGITS, 0.9, 8, 9, "a GPU")
    assert trace.terms.batch_sizes == (8, 16)  # speeds of 32 are not known
    assert [setting.power_limit_w for setting in trace.terms.settings] == [200.0, 100.0]
    assert trace.epochs == {8: (7.0, math.inf), 16: (math.inf,)}
    assert trace.epoch_time_s.tolist() == [[2.0, 3.0], [1.0, 2.0]]
    assert trace.power_w.tolist() == [[150.0, 90.0], [160.0, 95.0]]
    assert trace.mean_energy_j()[0, 1] == pytest.approx((7.0 + 9.0) * 3.0 * 90.0)  # each success comes with a failure


@pytest.mark.parametrize(
    ("train", "power", "says"),
    [
        (TRAIN.replace("target_epoch", "epoch"), POWER, "train.csv: has no column target_epoch"),
        (TRAIN, POWER.replace(",90\n", ",ninety\n"), "power.csv:2: average_power 'ninety' is not a number above 0"),
        (TRAIN.replace(",7\n", ",-7\n"), POWER, "train.csv:3: target_epoch '-7' is not a number above 0"),
        (TRAIN.replace("digits,mlp,8,sgd,0.1,1,0.9,7\n", "digits,mlp\n"), POWER, "train.csv:3: has fewer cells"),
    ],
)
def test_what_cannot_be_read_says_where(tmp_path: Path, train: str, power: str, says: str) -> None:
    with pytest.raises(BadInputError, match=says.replace(".", r"\.")):
        read_training_summaries(*_files(tmp_path, train, power))


def test_a_job_that_is_not_there(tmp_path: Path) -> None:
    train, power = _files(tmp_path)
    with pytest.raises(BadInputError, match=r"there is no digits / mlp with target 0\.7 in both files"):
        read_training_summaries(train, power).trace(DIGITS, 0.7, 8, 9, "a GPU")
    with pytest.raises(BadInputError, match="default 32: digits/mlp was not run at it, but at 8, 16"):
        read_training_summaries(train, power).trace(DIGITS, 0.9, 32, 9, "a GPU")
    with pytest.raises(BadInputError, match="No such file"):
        read_training_summaries(tmp_path / "none.csv", power)
    power.write_text(POWER.replace("digits,mlp,8,sgd,100,3,90\n", ""))
    with pytest.raises(BadInputError, match="no speed at batch size 8 and 100 W"):
        read_training_summaries(train, power).trace(DIGITS, 0.9, 8, 9, "a GPU")
