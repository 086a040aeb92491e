"""wastenot device calibrate: from a study to a simulated GPU that the other verbs take."""

from __future__ import annotations

import json
import shutil

import pytest

from testbed.calibration_sweeps import KERNELS as ALL_KERNELS, TOY, toy_gpu, true_sweep
from testbed.program import Program
from wastenot.study.sweep_file import write_sweep

KERNELS = ALL_KERNELS[:8]  # as many as errors are judged of; how good a twin is, test_calibration.py judges


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """The studies, to be copied."""
    wastenot = Program(tmp_path_factory.mktemp("studies"))
    core = (420.0, 840.0, 1200.0, 1410.0, 1605.0, 1800.0, 1950.0)
    write_sweep(true_sweep(toy_gpu(), KERNELS, core), wastenot.folder / "toy.csv")
    write_sweep(true_sweep(toy_gpu(), KERNELS[:2], core), wastenot.folder / "two.csv")
    for name in ("toy", "two"):
        ran = wastenot(
            "study", "import", f"{name}.csv", "--study", f"{name}.db", "--device-name", "Toy", "--origin", "simulated"
        )
        assert ran.code == 0, ran
    return wastenot.folder


@pytest.fixture
def swept(wastenot, studies):
    for name in ("toy.db", "two.db"):
        shutil.copy(studies / name, wastenot.folder)
    return wastenot


def test_a_twin_that_sweep_takes(swept):
    ran = swept("device", "calibrate", "--study", "toy.db", "--out", "twin.toml", "--power-limit", "350", "--base", str(TOY))
    assert ran.code == 0, ran
    assert "held-out points" in ran.out and "held-out kernels" in ran.out and "median" in ran.out
    assert "sim:twin.toml" in ran.err
    again = swept("kernel", "sweep", "toy.db", "--device", "sim:twin.toml", "--study", "twin.db", "--core", "840,1950",
                  "--memory",
                  "9501", "--warm-up", "1s", "--window", "1s")  # fmt: skip
    assert again.code == 0, again
    shown = json.loads(swept("show", "twin.db", "--json").out)
    assert shown["workloads"][0]["kernels"] == len(KERNELS)


def test_json(swept):
    ran = swept("device", "calibrate", "--study", "toy.db", "--out", "twin.toml", "--name", "my-twin", "--json")
    report = json.loads(ran.out)
    assert (report["name"], report["file"], report["kernels"]) == ("my-twin", "twin.toml", len(KERNELS))
    assert [set(errors) for errors in report["errors"]] == [{"what", "points", "time", "energy"}] * 3
    assert 'name = "my-twin"' in (swept.folder / "twin.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--study", "two.db", "--out", "no.toml"], "2 kernels"),
        (["--study", "toy.db", "--out", "no.json"], ".toml"),
        (["--study", "toy.db", "--out", "no.toml", "--power-limit", "-1"], "--power-limit"),
        (["--study", "toy.db", "--out", "no.toml", "--base", "h2000"], "did you mean 'h200'"),
        (["--study", "none.db", "--out", "no.toml"], "none.db"),
        (["--study", "toy.db", "--workload", "toi", "--out", "no.toml"], "toy"),
        (["--study", "toy.db"], "--out"),
    ],
)
def test_refusals_write_nothing(swept, arguments, says):
    assert says in swept.refuse("device", "calibrate", *arguments)
    assert not (swept.folder / "no.toml").exists()
