"""The contract of a study, the same in every database: an SQLite file, and a PostgreSQL server where there is one."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from sqlalchemy import delete, inspect, text, update

from testbed.sweeps import assert_same, large_sweep, small_sweep, sweep_of
from wastenot.core.errors import BadInputError, StudyError
from wastenot.study import schema
from wastenot.study.rows import insert_portably
from wastenot.study.store import open_study
from wastenot.study.sweep import Kernel, Sweep
from wastenot.workloads.identity import ModelRun, WorkloadKey
from wastenot.workloads.shape import Shape


@pytest.fixture
def filled(study):
    study.add(small_sweep(), source="small.csv", sha256="ab" * 32)
    return study


def test_gives_back_what_was_stored(filled):
    assert_same(filled.read(), small_sweep())
    assert_same(filled.read("w"), small_sweep())
    assert filled.workloads() == (WorkloadKey("w"),)


def test_gives_back_many_rows_in_order(study):
    sweep = large_sweep(40_000)
    study.add(sweep, source="large")
    assert_same(study.read(), sweep)


def test_numbers_keep_every_bit(study):
    values = [5e-324, 2.2250738585072014e-308, 0.1, 1 / 3, 1e300, 1.7976931348623157e308]
    sweep = sweep_of([(Kernel("µ\t\\N\n'x'\r", 2**53), {"time_s": v, "energy_j": v}) for v in values])
    study.add(sweep, source="bits")
    assert_same(study.read(), sweep)


def test_the_portable_way_stores_the_same(filled, raw):
    with raw.begin() as connection:
        connection.execute(delete(schema.measurements))
        kernel_ids = np.array(connection.execute(text("SELECT id FROM wastenot_kernels ORDER BY position")).scalars().all())
        insert_portably(connection, small_sweep(), 1, kernel_ids)
    assert_same(filled.read(), small_sweep())


def test_a_new_place_holds_nothing_yet(study, where):
    if "://" not in where:
        open(where, "x").close()  # an empty file is what a killed first import leaves
    assert study.workloads() == ()
    for verb in (study.read, study.summary):
        with pytest.raises(StudyError, match="is empty; fill it: wastenot kernel sweep"):
            verb()
    study.add(small_sweep(), source="s")
    assert_same(study.read(), small_sweep())


def test_a_study_of_latencies_alone_holds_no_measurements_of_kernels(study):
    study.keep_latency("{}", "sim:toy.toml")
    with pytest.raises(StudyError, match="holds no measurements of kernels; see what it holds: wastenot show"):
        study.read()


def test_summary(filled):
    filled.add(small_sweep(workload="other", origin="measured"), source="o.csv")
    summary = filled.summary()
    assert (summary.device, summary.schema_version) == ("sim:x", schema.SCHEMA_VERSION)
    assert summary.created_by.startswith("wastenot ")
    assert abs(datetime.now(UTC) - summary.created_at) < timedelta(minutes=5)
    first, second = summary.workloads
    assert (first.name, first.origin, first.kernels, first.rows) == ("w", "measured", 2, 5)
    assert first.settings == 3
    assert first.passes == ("forward", "backward")
    # The second kernel has two runs at auto, whose mean counts.
    assert first.auto_time_s == 24 * 0.5 + 12 * (0.25 + 0.75) / 2
    assert first.auto_energy_j == 24 * 100 + 12 * 51
    (entry,) = first.imports
    assert (entry.source, entry.sha256, entry.rows, entry.origin) == ("small.csv", "ab" * 32, 5, "measured")
    assert entry.imported_at.tzinfo is not None
    assert (second.name, second.imports[0].sha256) == ("other", None)


def test_which_workload(filled):
    filled.add(small_sweep(workload="llama-7b"), source="o")
    with pytest.raises(BadInputError, match="holds 2: 'w', 'llama-7b'; name one"):
        filled.read()
    with pytest.raises(BadInputError, match=r"there is no 'lama-7b'; did you mean 'llama-7b'\? It holds 'w'"):
        filled.read("lama-7b")
    assert filled.read("llama-7b").workload == "llama-7b"


def test_a_workload_that_has_rows_is_not_filled_twice_by_mistake(filled):
    with pytest.raises(BadInputError, match=r"has 5 rows already; add these with --append"):
        filled.add(small_sweep(), source="new.csv", sha256="cd" * 32)
    with pytest.raises(BadInputError, match=r"already holds this content \(imported from small.csv at 20.*--append"):
        filled.add(small_sweep(), source="renamed.csv", sha256="ab" * 32)
    assert_same(filled.read(), small_sweep())
    assert len(filled.summary().workloads[0].imports) == 1


def test_append_adds_repeats_and_new_kernels_last(filled):
    qkv, head = Kernel("qkv", 24, "forward", "layer"), Kernel("head", 1)
    more = sweep_of([(head, {}), (qkv, {"time_s": 0.5625, "core_mhz": 1500.0})])
    filled.add(more, source="more", append=True)
    both = filled.read()
    assert [kernel.name for kernel in both.kernels] == ["qkv", "mlp", "head"]
    assert both.kernel_index.tolist() == [0, 0, 1, 1, 1, 2, 0]
    np.testing.assert_array_equal(both.time_s, np.r_[small_sweep().time_s, more.time_s])
    assert [entry.rows for entry in filled.summary().workloads[0].imports] == [5, 2]


def test_append_to_a_workload_that_is_not_there_starts_it(study):
    study.add(small_sweep(), source="s", append=True)
    assert_same(study.read(), small_sweep())


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (Kernel("qkv", 25, "forward", "layer"), "count: of kernel 'qkv' is 25, but 24"),
        (Kernel("qkv", 24, "loss", "layer"), "pass: of kernel 'qkv' is 'loss', but 'forward'"),
        (Kernel("qkv", 24, "forward"), "block: of kernel 'qkv' is None, but 'layer'"),
    ],
)
def test_append_refuses_kernels_that_changed(filled, kernel, said):
    with pytest.raises(BadInputError, match=said):
        filled.add(sweep_of([(kernel, {})]), source="x", append=True)
    assert_same(filled.read(), small_sweep())


@pytest.mark.parametrize("append_to", ["w", "new"])
def test_append_refuses_a_new_kernel_without_baseline(filled, append_to):
    bad = sweep_of([(Kernel("new", 1), {"core_mhz": 300.0})], workload=append_to)
    with pytest.raises(BadInputError, match="'new' has no row with all settings auto"):
        filled.add(bad, source="x", append=True)
    assert filled.workloads() == (WorkloadKey("w"),)


def test_origins_are_never_mixed_in_a_workload(filled):
    with pytest.raises(BadInputError, match="rows of workload 'w' are measured, the new ones simulated"):
        filled.add(small_sweep(origin="simulated"), source="x", append=True)
    filled.add(small_sweep(origin="simulated", workload="sim"), source="x")
    assert filled.read("sim").origin == "simulated"


def test_one_study_one_device(filled):
    with pytest.raises(BadInputError, match="holds measurements of 'sim:x', not of 'nvidia:0'"):
        filled.add(small_sweep(device="nvidia:0", workload="b"), source="x")
    stored = filled.add(small_sweep(device="unknown", workload="b"), source="x")
    assert stored.device == filled.read("b").device == "sim:x"


@pytest.mark.parametrize(
    "bad",
    [
        small_sweep(workload=""),
        small_sweep(workload="x" * 256),
        small_sweep(device="n\0l"),
        small_sweep(origin="guessed"),
        sweep_of([(Kernel("\ud800", 1), {})]),
        sweep_of([(Kernel("k", 0), {})]),
        sweep_of([(Kernel("k", 2**53 + 1), {})]),
        sweep_of([(Kernel("k", 1, pass_name=""), {})]),
        sweep_of([(Kernel("k", 1), {}), (Kernel("k", 2), {})]),
        sweep_of([(Kernel("k", 1), {"time_s": np.inf})]),
        sweep_of([(Kernel("k", 1), {"energy_j": np.nan})]),
        sweep_of([(Kernel("k", 1), {"time_se_s": -1.0})]),
        sweep_of([]),
    ],
)
def test_sweeps_that_break_a_rule_are_refused_and_leave_nothing(study, where, bad):
    with pytest.raises(BadInputError) as caught:
        study.add(bad, source="x")
    assert "\n" not in str(caught.value)
    assert "://" in where or not os.path.exists(where)


def test_arrays_that_do_not_fit_are_refused(study):
    good = small_sweep()
    numbers = {name: getattr(good, name) for name in Sweep.__dataclass_fields__}
    for change in (
        {"calls": np.ones(4)},
        {"kernel_index": np.array([0, 0, 1, 1, 2])},
        {"kernel_index": np.full(5, -1)},
    ):
        with pytest.raises(BadInputError, match=next(iter(change))):
            study.add(Sweep(**(numbers | change)), source="x")


def test_a_long_kernel_name_is_kept(study):
    sweep = sweep_of([(Kernel("".join(map(chr, np.random.default_rng(1).integers(33, 9000, 20_000))), 1), {})])
    study.add(sweep, source="cutlass")
    assert_same(study.read(), sweep)


def test_a_newer_study_is_refused(filled, raw):
    with raw.begin() as connection:
        connection.execute(update(schema.study).values(schema_version=schema.SCHEMA_VERSION + 1))
    for verb in (
        filled.read,
        filled.summary,
        filled.workloads,
        lambda: filled.add(small_sweep(), source="x", append=True),
    ):
        with pytest.raises(StudyError, match=r"written by a newer wastenot \(schema 11; this one reads up to 10\); upgrade"):
            verb()


def test_a_study_of_an_earlier_schema_is_refused(filled, raw):
    with raw.begin() as connection:
        connection.execute(update(schema.study).values(schema_version=1))
    for verb in (filled.read, lambda: filled.add(small_sweep(), source="x", append=True)):
        with pytest.raises(StudyError, match=r"early wastenot \(schema 1; this one reads 10\); measure again into a new"):
            verb()


def test_states_and_granularities_live_side_by_side(study):
    run = ModelRun("llama-8b", Shape(phase="decode", batch=16, tensor_parallel=2, sequence_parallel=True))
    sweeps = [
        small_sweep(),
        small_sweep(state="context"),
        small_sweep(state="sse"),
        small_sweep(granularity="pass", run=run),
        small_sweep(granularity="iteration", state="context"),
    ]
    for sweep in sweeps:
        study.add(sweep, source="s")
    assert study.workloads() == tuple(sweep.key for sweep in sweeps)
    for sweep in sweeps:
        assert_same(study.read(sweep.workload, sweep.state, sweep.granularity), sweep)
    assert_same(study.read(), sweeps[0])
    assert_same(study.read(state="context"), sweeps[1])
    assert_same(study.read(granularity="pass"), sweeps[3])
    assert_same(study.read(state="sse", granularity="pass", finer=True), sweeps[2])
    with pytest.raises(BadInputError, match=r"measured by kernel, not by pass; measure it: .* --granularity pass"):
        study.read(state="sse", granularity="pass")
    assert [one.run for one in study.summary().workloads] == [None, None, None, run, None]


def test_without_steady_power_the_state_measured_first_is_meant(study):
    for state in ("context", "sse"):
        study.add(small_sweep(state=state), source="s")
    assert study.read().state == "context"
    with pytest.raises(BadInputError, match="was not measured with each kernel back to back, in steady power"):
        study.read(state="ssp")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE wastenot_study SET schema_version = 0",
        "UPDATE wastenot_workloads SET state = 'warm'",
        "DELETE FROM wastenot_study",
        "UPDATE wastenot_study SET created_at = 'once'",
        "DELETE FROM wastenot_measurements",
        "DROP TABLE wastenot_measurements",
        "ALTER TABLE wastenot_measurements RENAME COLUMN time_s TO time_ms",
        "UPDATE wastenot_measurements SET time_s = -1",
        "UPDATE wastenot_imports SET origin = 'guessed'",
        "UPDATE wastenot_kernels SET count = 0",
    ],
)
def test_a_damaged_study_is_said(filled, raw, damage):
    with raw.begin() as connection:
        connection.execute(text(damage))
    with pytest.raises(StudyError) as caught:
        filled.read()
    assert "is damaged; restore a copy" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_import_that_fails_midway_leaves_no_trace(study, filled, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("wastenot.study.store.insert_rows", fail)
    with pytest.raises(KeyboardInterrupt):
        study.add(small_sweep(workload="b"), source="x")
    assert study.workloads() == (WorkloadKey("w"),)


def test_a_first_import_that_fails_midway_leaves_no_tables(study, where, raw, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("wastenot.study.store.insert_rows", fail)
    with pytest.raises(KeyboardInterrupt):
        study.add(small_sweep(), source="x")
    if "://" in where:
        assert inspect(raw).get_table_names() == []
    else:
        assert os.listdir(os.path.dirname(where)) == []


def test_a_writer_waits_for_another_and_then_says_so(filled, monkeypatch):
    entered, leave = threading.Event(), threading.Event()
    original = schema.metadata.create_all

    def slow(connection):
        original(connection)
        entered.set()
        assert leave.wait(10)

    with monkeypatch.context() as patch:
        patch.setattr(schema.metadata, "create_all", slow)
        writer = threading.Thread(target=filled.add, args=(small_sweep(workload="b"),), kwargs={"source": "x"})
        writer.start()
        assert entered.wait(10)
    try:
        with pytest.raises(StudyError, match="another program is writing to it; try again"):
            filled.add(small_sweep(workload="c"), source="x")
        assert filled.workloads() == (WorkloadKey("w"),)  # who only reads sees the study as it was
    finally:
        leave.set()
        writer.join()
    assert filled.workloads() == (WorkloadKey("w"), WorkloadKey("b"))


def test_first_imports_at_the_same_time_all_arrive(where):
    errors = []

    def add(name):
        try:
            open_study(where, create=True, busy_timeout_s=30).add(small_sweep(workload=name), source="x")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=add, args=(f"w{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(key.name for key in open_study(where).workloads()) == [f"w{number}" for number in range(6)]
