"""Whatever a sweep holds, every way out and back gives it again, to the last bit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from testbed.sweeps import assert_same, sweeps
from wastenot.study.store import open_study
from wastenot.study.sweep_file import read_sweep, write_sweep


@settings(max_examples=50)
@given(sweeps())
def test_csv(sweep):
    with tempfile.TemporaryDirectory() as folder:
        write_sweep(sweep, Path(folder) / "w.csv")
        assert_same(read_sweep(Path(folder) / "w.csv", device="sim:x"), sweep)


@settings(max_examples=25)
@given(sweeps())
def test_parquet(sweep):
    pytest.importorskip("polars", reason="Parquet needs the report extra")
    with tempfile.TemporaryDirectory() as folder:
        write_sweep(sweep, Path(folder) / "w.parquet")
        assert_same(read_sweep(Path(folder) / "w.parquet", device="sim:x"), sweep)


@settings(max_examples=25)
@given(sweeps())
def test_sqlite(sweep):
    with tempfile.TemporaryDirectory() as folder:
        open_study(Path(folder) / "s.db", create=True).add(sweep, source="test")
        assert_same(open_study(Path(folder) / "s.db").read(), sweep)
