"""Sweep files as Parquet: the same contract as CSV, and what only Parquet can have wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest

from testbed.sweeps import assert_same, small_sweep
from wastenot.core.errors import BadInputError
from wastenot.core.install import install_line
from wastenot.study.sweep import Kernel
from wastenot.study.sweep_file import read_sweep, write_sweep

pl = pytest.importorskip("polars", reason="Parquet needs the report extra")

GOOD = {
    "kernel": ["k", "k"],
    "count": [3, 3],
    "core_mhz": [None, 300],
    "memory_mhz": [None, None],
    "time_s": [1.0, 2.0],
    "energy_j": [1.0, 2.0],
}


def written(tmp_path, columns, name="s.parquet"):
    path = tmp_path / name
    pl.DataFrame(columns, strict=False).write_parquet(path)
    return path


@pytest.mark.parametrize("name", ["s.parquet", "s.pq", "S.PARQUET"])
def test_reads_what_others_write(tmp_path, name):
    sweep = read_sweep(written(tmp_path, GOOD, name))
    assert sweep.kernels == (Kernel("k", 3),)
    assert sweep.core_mhz[1] == 300
    assert sweep.setting(0).is_auto


def test_reads_categories_and_narrow_numbers(tmp_path):
    columns = {
        **GOOD,
        "kernel": pl.Series(["k", "k"], dtype=pl.Categorical),
        "count": pl.Series([3, 3], dtype=pl.UInt8),
        "time_s": pl.Series([0.5, 2.0], dtype=pl.Float32),
        "pass": pl.Series([None, None], dtype=pl.Null),
    }
    sweep = read_sweep(written(tmp_path, columns))
    assert sweep.kernels == (Kernel("k", 3),)
    assert sweep.time_s.tolist() == [0.5, 2.0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"time_s": [1.0, float("nan")]}, "row 2: time_s: is NaN"),
        ({"core_mhz": [float("nan"), 300.0]}, "row 1: core_mhz: is NaN; must be a number, or null"),
        ({"time_s": [1.0, float("inf")]}, "row 2: time_s: is inf"),
        ({"time_s": [1.0, None]}, "row 2: time_s: is empty"),
        ({"energy_j": [1.0, -1.0]}, "row 2: energy_j: is -1.0"),
        ({"time_s": ["1", "2"]}, "row 1: time_s: is String; must be numbers"),
        ({"count": [True, True]}, "row 1: count: is Boolean"),
        ({"count": [2**53 + 1, 2**53 + 1]}, f"row 1: count: is {2**53 + 1}"),
        ({"count": [1.5, 1.5]}, "row 1: count: is 1.5"),
        ({"kernel": [1, 2]}, "row 1: kernel: is Int64; must be text"),
        ({"kernel": ["k", None]}, "row 2: kernel: is empty"),
        ({"core_mhz": [200, 300]}, "row 1: kernel: 'k' has no row with all settings empty"),
        ({"clock": [1, 1]}, "header: 'clock': unknown column"),
    ],
)
def test_refuses(tmp_path, change, said):
    path = written(tmp_path, GOOD | change)
    with pytest.raises(BadInputError) as caught:
        read_sweep(path)
    assert str(caught.value).startswith(f"{path}: {said}")
    assert "\n" not in str(caught.value)


def test_refuses_what_is_not_parquet(tmp_path):
    path = tmp_path / "s.parquet"
    whole = written(tmp_path, GOOD, "whole.parquet").read_bytes()
    for content, said in [
        (b"", "the file is empty"),
        (b"kernel,count\n", "not a complete Parquet file"),
        (whole[:-20], "not a complete Parquet file"),
        (b"PAR1" + b"\xff" * 40 + b"PAR1", "cannot be read"),
        (b"PAR1", "cannot be read"),
    ]:
        path.write_bytes(content)
        with pytest.raises(BadInputError, match=said) as caught:
            read_sweep(path)
        assert "\n" not in str(caught.value)
    empty = written(tmp_path, {name: [] for name in GOOD}, "empty.parquet")
    with pytest.raises(BadInputError, match="there is no row"):
        read_sweep(empty)


def test_leaves_out_what_is_absent(tmp_path):
    write_sweep(small_sweep(workload="s"), tmp_path / "s.parquet")
    assert pl.read_parquet(tmp_path / "s.parquet").columns == [
        "kernel", "count", "core_mhz", "memory_mhz", "time_s", "energy_j",
        "power_limit_w", "pass", "block", "time_se_s", "effective_core_mhz",
    ]  # fmt: skip
    assert_same(read_sweep(tmp_path / "s.parquet", device="sim:x"), small_sweep(workload="s"))


def test_without_polars_csv_works_and_parquet_says_what_to_install(tmp_path):
    program = """
import sys
sys.modules["polars"] = None
from wastenot.core.errors import MissingExtraError
from wastenot.study import store, sweep_file
from wastenot.study.sweep_file import read_sweep, write_sweep
write_sweep(read_sweep(sys.argv[1]), sys.argv[2] + "/copy.csv")
sweep_file.import_sweep(sys.argv[1], sys.argv[2] + "/s.db")
folder = sys.argv[2]
for attempt in (
    lambda: read_sweep(folder + "/s.parquet"),
    lambda: sweep_file.export_sweep(folder + "/s.db", folder + "/new.pq"),
):
    try:
        attempt()
    except MissingExtraError as error:
        print(error)
"""
    csv = tmp_path / "s.csv"
    write_sweep(small_sweep(), csv)
    written(tmp_path, GOOD)
    done = subprocess.run([sys.executable, "-c", program, csv, tmp_path], check=True, capture_output=True, text=True)
    assert done.stdout.count(install_line("report")) == 2
    assert not (tmp_path / "new.pq").exists()


def test_polars_is_not_imported_before_it_is_needed():
    program = "import sys; import wastenot.study.sweep_file; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
