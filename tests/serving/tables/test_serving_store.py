"""Servers in a study: points are what they were when they are read, runs can be resumed, and older studies are read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st
from sqlalchemy import text

from testbed.sweeps import small_sweep
from wastenot.core.errors import BadInputError, StudyError
from wastenot.core.setting import AUTO, Setting
from wastenot.serving.tables import schema
from wastenot.serving.tables.records import Percentiles, ServingPoint
from wastenot.serving.tables.store import ServingStore, WantedPoint, point_of, row_of
from wastenot.study.store import open_study

POINT = ServingPoint(
    model="meta-llama/Llama-3.1-8B-Instruct",
    gpu="H100",
    gpus=2,
    task="lm-arena-chat",
    max_running=64,
    mean_running=61.25,
    energy_per_token_j=0.279562069098521,
    power_w=600.0061318129106,
    tokens_per_s=2146.2357896680815,
    output_tokens=310.5,
    itl=Percentiles(0.029, 0.028065836057066917, 0.0299, 0.031, 0.0345),
    ttft=Percentiles(p99_s=0.8),
    setting=Setting(1410.0, None, 350.0),
    tensor_parallel=2,
    precision="bfloat16",
    steady_s=31.5,
    evidence="simulated",
    source="http://localhost:8000",
    energy_per_token_se_j=0.003,
    why_unstable="mean batch 80 % of the one asked for",
    notes=("the meter moves every 30 s",),
    server=(("vllm:num_requests_running", 61.0), ("vllm:kv_cache_usage_perc", 0.25)),
)


@pytest.fixture
def store(study):
    return ServingStore(study)


def test_points_are_read_as_they_were_stored(store):
    latency_only = replace(POINT, energy_per_token_j=None, energy_per_token_se_j=None, power_w=None, rate_per_s=2.5)
    assert store.add([POINT, latency_only], source="a test") == 2
    assert store.points() == (POINT, latency_only)
    assert store.points(stable_only=True) == ()


_SOME = st.none() | st.floats(1e-9, 1e9)
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@settings(max_examples=40)
@given(
    st.builds(
        ServingPoint,
        model=_TEXT,
        gpu=_TEXT,
        gpus=st.integers(1, 8),
        task=_TEXT,
        max_running=st.integers(1, 2**40),
        mean_running=_SOME,
        energy_per_token_j=_SOME,
        power_w=_SOME,
        tokens_per_s=st.floats(1e-9, 1e9),
        output_tokens=_SOME,
        itl=st.builds(Percentiles, _SOME, _SOME, _SOME, _SOME, _SOME),
        ttft=st.builds(Percentiles, _SOME, _SOME, _SOME, _SOME, _SOME),
        end_to_end=st.builds(Percentiles, _SOME, _SOME, _SOME, _SOME, _SOME),
        setting=st.builds(Setting, _SOME, _SOME, _SOME),
        steady_s=_SOME,
        rate_per_s=_SOME,
        why_unstable=_TEXT,
        notes=st.lists(_TEXT, max_size=3).map(tuple),
        server=st.dictionaries(_TEXT, st.floats(-1e9, 1e9), max_size=3).map(lambda each: tuple(each.items())),
    )
)
def test_a_row_holds_all_of_a_point(point):
    class Row:
        pass

    row = Row()
    values = row_of(point, 1)
    assert values.keys() == {column.name for column in schema.serving_points.columns} - {"id"}
    for name, value in values.items():
        setattr(row, name, value)
    assert point_of(row) == point


def test_a_run_keeps_its_points_as_they_come_and_knows_what_is_left(store, study):
    wanted = (WantedPoint(8), WantedPoint(16, setting=Setting(1200.0)), WantedPoint(None, 2.0))
    run = store.begin(wanted, source="http://a:1", command="wastenot serve bench http://a:1")
    run.keep(POINT)
    (stored,) = store.runs()
    assert (stored.wanted, stored.points, stored.finished_at) == (wanted, 1, None)
    assert stored.command == "wastenot serve bench http://a:1"
    run.finish()
    assert store.runs()[0].finished_at is not None
    (summary,) = study.summary().others["servers"]
    assert (summary.points, summary.unstable, summary.energy_per_token_j) == (1, 1, None)
    assert [str(each) for each in wanted] == ["batch 8", "batch 16 at core 1200, memory auto", "2 requests/s"]


def test_the_same_file_twice_is_refused_and_changes_nothing(store):
    store.add([POINT], source="table.csv", sha256="ab")
    with pytest.raises(BadInputError, match=r"already holds this content \(imported from table.csv"):
        store.add([POINT], source="copy.csv", sha256="ab")
    with pytest.raises(BadInputError, match="holds no points"):
        store.add([], source="empty.csv")
    assert len(store.points()) == 1


def test_a_study_that_is_not_there_holds_no_points_and_is_not_made(tmp_path):
    path = tmp_path / "none.db"
    assert ServingStore(open_study(path, create=True)).points() == ()
    assert not path.exists()


def test_servers_stand_beside_workloads_of_another_device(store, study):
    store.add([POINT], source="a test")
    study.add(small_sweep(device="sim:x"), source="a test")
    store.add([replace(POINT, gpu="B200", why_unstable="")], source="a test")
    summary = study.summary()
    assert summary.device == "sim:x" and len(summary.workloads) == 1
    servers = summary.others["servers"]
    assert [each.gpu for each in servers] == ["H100", "B200"]
    assert servers[1].energy_per_token_j == POINT.energy_per_token_j


def test_a_damaged_point_is_said_so(store, raw, study):
    store.add([POINT], source="a test")
    with raw.begin() as connection:
        connection.execute(text("UPDATE wastenot_serving_points SET evidence = 'rumoured'"))
    with pytest.raises(StudyError, match="rumoured"):
        store.points()
    with pytest.raises(StudyError, match="rumoured"):
        study.summary()


def test_a_study_of_servers_alone_says_so(store, study):
    store.add([POINT], source="a test")
    with pytest.raises(StudyError, match="holds no measurements of kernels"):
        study.read()
    assert WantedPoint(8).setting == AUTO
