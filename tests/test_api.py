"""The public names, and how little they cost until used."""

import subprocess
import sys

import pytest

import wastenot as wn


def test_every_public_name_is_there():
    assert set(dir(wn)) == set(wn.__all__) == set(wn._MODULE_OF)
    assert all(getattr(wn, name) is not None for name in wn.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = wn.nothing


def test_import_is_light():
    code = "import sys, wastenot; assert not {'numpy', 'scipy', 'pydantic', 'sqlalchemy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_example_of_the_module_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.csv").write_text(
        "kernel,count,core_mhz,memory_mhz,time_s,energy_j\ngemm,3,,,1,9\ngemm,3,900,,1.01,5\n"
    )
    wn.import_sweep("sweep.csv", "my.db", device="RTX 3080 Ti")
    sweep = wn.open_study("my.db").read()
    plan = wn.plan(sweep, wn.Objective("waste", max_slowdown=0.02))
    plan.write("plan.json")
    assert wn.read_plan("plan.json").predicted.energy_j == 15.0
