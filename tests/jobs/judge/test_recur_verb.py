"""``wastenot job replay``: policies for jobs that come back, on traces."""

import json

import pytest

from testbed.job_traces import POWER, TRAIN


@pytest.fixture
def traces(wastenot, tmp_path):
    (tmp_path / "train.csv").write_text(TRAIN)
    (tmp_path / "power.csv").write_text(POWER)
    return wastenot


GIVEN = (
    "job",
    "replay",
    "train.csv",
    "power.csv",
    "--target",
    "0.9",
    "--default",
    "128",
    "--seeds",
    "2",
    "--processes",
    "1",
)


def test_policies_are_shown_side_by_side(traces):
    ran = traces(*GIVEN)
    assert ran.code == 0, ran.err
    assert "Simulated: 1 job, η = 0.5, 2 seeds, runs one after another" in ran.out
    assert all(name in ran.out for name in ("default", "grid search", "wastenot", "oracle", "digits/mlp", "24"))


def test_the_document_has_curves_and_choices(traces):
    document = json.loads(traces(*GIVEN, "--eta", "1", "--overlap", "2", "--recurrences", "30", "--json").out)
    assert document["schema"] == "wastenot.recur/1" and document["eta"] == 1.0 and document["overlap"] == 2.0
    (job,) = document["jobs"]
    assert job["batch_sizes"] == [16, 32, 64, 128] and job["max_epochs"] == 35 and job["recurrences"] == 30
    by = {each["policy"]: each for each in job["policies"]}
    assert by["default"]["choice"]["batch_size"] == 128 and by["oracle"]["choice"] == job["best"]
    assert by["default"]["regret"] > by["wastenot"]["regret"] > by["oracle"]["regret"] - 1.0
    assert by["wastenot"]["energy_against_default"] < 0.8
    curve = by["wastenot"]["curve"]
    assert curve["recurrence"][-1] == 30 and curve["regret"][-1] == pytest.approx(by["wastenot"]["regret"])
    assert by["wastenot"]["regret_by_seed"][0] != by["wastenot"]["regret_by_seed"][1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["job", "replay"], "give two files, TRAIN.csv and POWER.csv, or --made-up N"),
        (["job", "replay", "none.csv"], "none.csv: No such file or directory"),
        (["job", "replay", "train.csv", "none.csv"], "none.csv: No such file or directory"),
        (["job", "replay", "power.csv", "train.csv"], "power.csv: has no column target_metric"),
        (["job", "replay", "train.csv", "power.csv"], "--target: digits/mlp has runs to several; give one of 0.5, 0.9"),
        (
            ["job", "replay", "train.csv", "power.csv", "--target", "0.7"],
            "--target 0.7: digits/mlp has no runs to it, but to 0.5, 0.9",
        ),
        (
            ["job", "replay", "train.csv", "power.csv", "--target", "0.9"],
            "--default: which batch size is used today? one of 16, 32",
        ),
        ([*GIVEN, "--default", "8"], "--default 8: digits/mlp was not run at it, but at 16, 32, 64, 128"),
        ([*GIVEN, "--job", "squad"], "--job squad: is not in both files; those in both are: digits/mlp"),
        ([*GIVEN, "--max-epochs", "2"], "no run of digits/mlp reaches 0.9 within 2 epochs"),
        ([*GIVEN, "--max-epochs", "0"], "--max-epochs 0: must be at least 1"),
        ([*GIVEN, "--made-up", "1"], "--made-up: replaces the files"),
        ([*GIVEN, "--eta", "2"], "--eta 2: must be between 0 (time) and 1 (energy)"),
        ([*GIVEN, "--overlap", "0"], "--overlap 0: must be above 0"),
        ([*GIVEN, "--seeds", "0"], "--seeds 0: must be at least 1"),
    ],
)
def test_bad_input_is_one_line(traces, arguments, says):
    ran = traces(*arguments)
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1 and not ran.out


def test_a_job_may_be_named_by_the_beginning_of_its_network(traces, tmp_path):
    (tmp_path / "train.csv").write_text(TRAIN + TRAIN.split("\n", 1)[1].replace("mlp", "cnn"))
    (tmp_path / "power.csv").write_text(POWER + POWER.split("\n", 1)[1].replace("mlp", "cnn"))
    assert "--job: which job? digits/cnn, digits/mlp" in traces(*GIVEN).err
    assert "digits/cnn" in traces(*GIVEN, "--job", "digits/c", "--recurrences", "3").out
