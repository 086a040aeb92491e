"""The public names, and how little they cost until used."""

import doctest
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import wastenot as wn
from testbed.program import SWEEP


def test_every_public_name_is_there():
    assert set(dir(wn)) == set(wn.__all__)
    assert all(getattr(wn, name) is not None for name in wn.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = wn.nothing


def test_importing_a_room_leaves_the_functions_what_they_are():
    for path in Path(wn.__file__).parent.glob("*/__init__.py"):
        importlib.import_module(f"wastenot.{path.parent.name}")
    modules = [name for name in wn.__all__ if isinstance(getattr(wn, name), ModuleType)]
    assert modules == ["serve"]  # the one that is meant


def test_import_is_light():
    code = "import sys, wastenot; assert not {'numpy', 'scipy', 'pydantic', 'sqlalchemy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def run_example(function):
    (example,) = doctest.DocTestFinder(recurse=False).find(function, globs={})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize(
    "more",
    [(), pytest.param((wn.validate, wn.refine, wn.transfer, wn.forecast), marks=pytest.mark.slow)],
    ids=["planned", "measured again"],
)
def test_the_examples_run_one_after_another(tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    for function in (wn.workload, wn.sweep, wn.plan, *more):
        run_example(function)


def test_the_example_of_a_report_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.csv").write_text(SWEEP)
    wn.import_sweep(tmp_path / "sweep.csv", tmp_path / "my.db", device="RTX 3080 Ti")
    run_example(wn.report)


@pytest.mark.parametrize(
    "function",
    [wn.open_device, wn.measure, pytest.param(wn.profile, marks=pytest.mark.slow), wn.measure_latency, wn.tune],
)
def test_examples_that_need_no_study_run(function):
    run_example(function)


@pytest.mark.slow
def test_the_example_of_a_capture_runs():
    pytest.importorskip("torch")
    run_example(wn.capture)


def test_every_verb_takes_paths_or_objects(tmp_path):
    sweep = tmp_path / "sweep.csv"
    sweep.write_text("kernel,count,core_mhz,memory_mhz,time_s,energy_j\ngemm,3,,,1,9\ngemm,3,900,,1.01,5\n")
    wn.import_sweep(sweep, tmp_path / "my.db", device="RTX 3080 Ti")
    study = wn.open_study(tmp_path / "my.db")
    plans = [wn.plan(source, max_slowdown=0.02) for source in (tmp_path / "my.db", study, study.read())]
    plans.append(wn.plan(study, wn.Objective("waste", max_slowdown=0.02)))
    plans[0].write(tmp_path / "plan.json")
    assert {plan.predicted.energy_j for plan in [*plans, wn.read_plan(tmp_path / "plan.json")]} == {15.0}
    device = wn.open_device(f"recorded:{tmp_path / 'my.db'}")
    names = (tmp_path / "plan.json", tmp_path / "my.db", f"recorded:{tmp_path / 'my.db'}")
    with pytest.raises(wn.BadInputError, match="made on 'RTX 3080 Ti'"):
        wn.validate(*names)
    with pytest.raises(wn.BadInputError, match="made on 'RTX 3080 Ti'"):
        wn.validate(plans[0], study, device)


def test_errors_name_arguments(tmp_path):
    with pytest.raises(wn.BadInputError, match=r"^batch, tensor_parallel: give one of them"):
        wn.transfer("plan.json", "sim:h200")
    with pytest.raises(wn.BadInputError, match=r"^finalists 0: "):
        wn.refine(tmp_path / "my.db", "sim:h200", finalists=0)
    with pytest.raises(wn.BadInputError, match=r"^finalists 0: must be at least 1"):
        wn.Finalists(each=0)
    with pytest.raises(wn.BadInputError, match=r"^goal 0.5: give wn.JobGoal\(eta="):
        wn.job("nightly", study=tmp_path / "my.db", batch_sizes=[1], default=1, goal=0.5)
    with pytest.raises(wn.BadInputError, match=r"^objective: sets all of these; leave out max_slowdown"):
        wn.plan(tmp_path / "my.db", wn.Objective(), max_slowdown=0.1)
    with pytest.raises(wn.BadInputError, match=r"^batch: mine.json is a workload file"):
        wn.workload("mine.json", batch=2)
