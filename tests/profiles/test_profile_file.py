"""Profiles as files: what is written comes back, and what is wrong is named."""

import io
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import wastenot as wn
from wastenot.profiles.options import ProfileOptions
from wastenot.profiles.profile import profile
from wastenot.profiles.profile_file import KEY, profile_document, read_profile, write_profile


@pytest.fixture(scope="module")
def found():
    return profile("gemm:4096", "sim:mi300x", options=ProfileOptions(runs=30, executions=16))


@pytest.fixture(scope="module")
def content(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("profile") / "p.parquet"
    write_profile(found, path, command="wastenot profile run gemm:4096")
    return path.read_bytes()


@pytest.fixture
def written(content, tmp_path):
    path = tmp_path / "p.parquet"
    path.write_bytes(content)
    return path


def spoilt(path, change_document=None, change_rows=None):
    content = path.read_bytes()
    document = json.loads(pl.read_parquet_metadata(io.BytesIO(content))[KEY])
    frame = pl.read_parquet(io.BytesIO(content))
    if change_document:
        change_document(document)
    if change_rows:
        frame = change_rows(frame)
    frame.write_parquet(path, metadata={KEY: json.dumps(document)})
    return path


def same(first, second):
    one, other = profile_document(first), profile_document(second)
    one.pop("provenance"), other.pop("provenance")
    assert one == other
    for field in first.logged.__slots__:
        ours, theirs = getattr(first.logged, field), getattr(second.logged, field)
        assert ours.dtype.kind == theirs.dtype.kind and np.array_equal(ours, theirs), field
    assert first.state("SSP").energy_j == second.state("SSP").energy_j


def test_what_is_written_comes_back(found, written):
    same(found, read_profile(written))
    same(found, wn.read_profile(written))


def test_runs_that_ended_before_the_last_state_come_back(found, tmp_path):
    times_s = found.execution_time_s.copy()
    times_s[0] = np.nan
    write_profile(replace(found, execution_time_s=times_s), tmp_path / "p.parquet")
    np.testing.assert_array_equal(read_profile(tmp_path / "p.parquet").execution_time_s, times_s)


def test_what_is_not_known_comes_back_as_not_known(found, tmp_path):
    level = replace(found.channels[-1], idle_w=float("nan"), noise_w=float("nan"), steady_w=float("nan"), mean_w=np.empty(0),
                    error_w=np.empty(0))  # fmt: skip
    short = replace(
        found, channels=(*found.channels[:-1], level), complete=False, stopped="lost", notes=("a note",), counter=None
    )
    write_profile(short, tmp_path / "short.parquet")
    back = read_profile(tmp_path / "short.parquet")
    same(short, back)
    assert np.isnan(back.channels[-1].idle_w) and not len(back.channels[-1].mean_w) and not back.complete


def test_a_file_written_before_core_clocks_were_counted_is_read(found, written):
    back = read_profile(spoilt(written, lambda d: d.pop("unit_counted_mhz")))
    assert back.unit_counted_mhz is None and back.counted_mhz(back.state("SSP")) is None
    same(replace(found, unit_counted_mhz=None), back)


def test_the_file_says_where_it_comes_from(written):
    document = json.loads(pl.read_parquet_metadata(written)[KEY])
    assert document["schema"] == "wastenot.profile/1" and document["origin"] == "simulated"
    assert document["provenance"]["command"] == "wastenot profile run gemm:4096" and document["provenance"]["made_at"]
    assert pl.read_parquet(written).columns[0] == "channel"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(schema="wastenot.profile/9"), "schema: is 'wastenot.profile/9'"),
        (lambda d: d.pop("kernel"), "kernel: Field required"),
        (lambda d: d["states"][1].update(unit=10_000), "state 'SSP' is of execution 10000"),
        (
            lambda d: d["states"][0]["channels"].update(GPU=d["states"][0]["channels"]["total"]),
            "'GPU', which is not a channel",
        ),
        (lambda d: d["states"][0]["channels"]["total"]["share"].pop(), "states.0.channels.total"),
        (lambda d: d["channels"][0]["channel"].update(period_s=0.0), "channels.0.channel.period_s"),
        (lambda d: d["unit_time_s"].pop(), "begins of units"),
        (lambda d: d["unit_counted_mhz"].pop(), "begins of units, but [0-9]+ core clocks"),
        (lambda d: d["unit_counted_mhz"].insert(0, -1.0), "unit_counted_mhz.0: "),
        (lambda d: d.update(origin="dreamt"), "origin"),
    ],
)
def test_a_wrong_document_is_named(written, change, says):
    with pytest.raises(wn.BadInputError, match=says):
        read_profile(spoilt(written, change))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: f.drop("power_w"), "no column power_w"),
        (lambda f: f.with_columns(channel=pl.lit("GPU")), "row 1: channel: is 'GPU'; must be one of total"),
        (lambda f: f.with_columns(run=pl.lit(-1, pl.Int32)), "row 1: run: is -1"),
        (lambda f: f.with_columns(share=pl.lit(1.5)), "row 1: share: is 1.5"),
        (lambda f: f.with_columns(power_w=pl.lit(float("nan"))), "row 1: power_w: is not a finite number"),
        (lambda f: f.with_columns(power_w=pl.lit(None, pl.Float64)), "row 1: power_w: is empty"),
        (lambda f: f.with_columns(golden=pl.lit(1)), "golden: is Int"),
    ],
)
def test_a_wrong_row_is_named(written, change, says):
    with pytest.raises(wn.BadInputError, match=says):
        read_profile(spoilt(written, None, change))


def test_other_files_are_refused(found, written, tmp_path):
    with pytest.raises(wn.BadInputError, match="cannot be read"):
        read_profile(tmp_path / "none.parquet")
    written.write_bytes(written.read_bytes()[:-20])
    with pytest.raises(wn.BadInputError, match="not a complete Parquet file"):
        read_profile(written)
    pl.DataFrame({"a": [1]}).write_parquet(written)
    with pytest.raises(wn.BadInputError, match="not a power profile"):
        read_profile(written)
    with pytest.raises(wn.BadInputError, match="nowhere"):
        write_profile(found, tmp_path / "nowhere" / "p.parquet")
