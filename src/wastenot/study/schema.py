"""The tables of a study: those of kernels and who measures them. Subjects add tables of their own."""

from __future__ import annotations

from importlib import import_module
from typing import Final, Protocol

from sqlalchemy import Boolean, Column, Connection, ForeignKey, LargeBinary, MetaData, Table, UniqueConstraint

from wastenot.study.columns import BigInteger, Double, Integer, String, Text
from wastenot.study.sweep import NUMBERS

SCHEMA_VERSION = 10
"""Whoever changes these tables counts it up and adds a step to migration.py. Studies record sweeps, and who is measuring,
since 3, natural clocks since 4, switching latency since 5, jobs since 6, servers since 7 and simulated clusters since 8;
since 9 a workload says itself what it was captured on, and since 10 settings may have a workload power profile and a job
says what learning may cost."""

SUBJECTS: Final = ("wastenot.jobs.tables.schema", "wastenot.serving.tables.brief")
"""Modules that add a subject's tables to ``metadata``, each a :class:`Subject`: by name, since a study knows no subject."""

# Names begin with ours, because on a database server a study may share its schema with other programs' tables.
metadata = MetaData()

study = Table(
    "wastenot_study",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("schema_version", Integer, nullable=False),
    Column("device", String(255), nullable=False),
    Column("created_by", String(255), nullable=False),
    Column("created_at", String(32), nullable=False),
)

# Name, state and granularity identify a workload. Model and shape, all null where they are not known, say what its kernels
# compute.
workloads = Table(
    "wastenot_workloads",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("state", String(16), nullable=False),
    Column("granularity", String(16), nullable=False),
    Column("model", String(255)),
    Column("phase", String(16)),
    Column("batch", Integer),
    Column("sequence", Integer),
    Column("tensor_parallel", Integer),
    Column("sequence_parallel", Boolean),
    Column("dtype", String(16)),
    Column("attention", String(16)),
    Column("optimizer", String(16)),
    # The kind of device that it was captured on: PyTorch runs other operations on another kind.
    Column("captured_on", String(64)),
    UniqueConstraint("name", "state", "granularity"),
)

# What was measured as one: kernels, passes, or the iteration. The names of C++ kernel templates outgrow what a server can
# index, so their uniqueness is checked by the store.
kernels = Table(
    "wastenot_kernels",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("workload_id", ForeignKey(workloads.c.id), nullable=False),
    Column("position", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("pass", Text),
    Column("block", Text),
    UniqueConstraint("workload_id", "position"),
)

# The captured operations that one of these runs, in order, with all it takes to run them again. Of a model they follow from
# its shape.
captured = Table(
    "wastenot_captured",
    metadata,
    Column("kernel_id", ForeignKey(kernels.c.id), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("calls", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("place", Integer, nullable=False),
    Column("pass", Text, nullable=False),
    Column("block", Text),
    Column("label", Text, nullable=False),
    Column("op", String(32), nullable=False),
    Column("shape", Text, nullable=False),
    Column("flops", Double, nullable=False),
    Column("bytes_read", Double, nullable=False),
    Column("bytes_written", Double, nullable=False),
    Column("element_bytes", Integer, nullable=False),
    Column("operation", Text, nullable=False),
    Column("arguments", Text, nullable=False),
)

imports = Table(
    "wastenot_imports",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("workload_id", ForeignKey(workloads.c.id), nullable=False),
    Column("source", Text, nullable=False),
    Column("sha256", String(64)),
    Column("rows", Integer, nullable=False),
    Column("origin", String(16), nullable=False),
    Column("imported_at", String(32), nullable=False),
)

# Rows are stored in the order of their key, which is the order in which they are written and read.
measurements = Table(
    "wastenot_measurements",
    metadata,
    Column("import_id", ForeignKey(imports.c.id), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("kernel_id", ForeignKey(kernels.c.id), nullable=False),
    *(Column(column.name, Double, nullable=column.empty is not None) for column in NUMBERS),
    sqlite_with_rowid=False,
)

# How a row came about, where wastenot measured it: apart from the numbers, so that a million imported rows stay small.
trials = Table(
    "wastenot_trials",
    metadata,
    Column("import_id", ForeignKey(imports.c.id), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("window_s", Double, nullable=False),
    Column("throttled_share", Double),
    Column("memory_power_w", Double),
    Column("how", Text, nullable=False),
    Column("stopped", Text, nullable=False),
    Column("flags", Text, nullable=False),
    sqlite_with_rowid=False,
)

# What each sweep set out to measure, and whether it came to its end; see coverage.py. Settings are a JSON list of core
# clock, memory clock, power limit and, where there is one, profile; excluded points one of kernel names and positions in
# that list.
sweeps = Table(
    "wastenot_sweeps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("workload_id", ForeignKey(workloads.c.id), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("settings", Text, nullable=False),
    Column("excluded", Text, nullable=False),
    Column("share", Double),
    Column("max_slowdown", Double),
    Column("command", Text),
    Column("started_at", String(32), nullable=False),
    Column("finished_at", String(32)),
)

# Who is measuring a workload now; see lease.py.
leases = Table(
    "wastenot_leases",
    metadata,
    Column("workload_id", ForeignKey(workloads.c.id), primary_key=True, autoincrement=False),
    Column("token", String(32), nullable=False),
    Column("host", String(255), nullable=False),
    Column("user", String(255), nullable=False),
    Column("process", BigInteger, nullable=False),
    Column("process_started", String(32), nullable=False),
    Column("process_space", String(255), nullable=False),
    Column("what", Text, nullable=False),
    Column("started_at", String(32), nullable=False),
    Column("heard_at", String(32), nullable=False),
)

# What was seen of a kernel at natural clocks, a record for each run, packed by packing.py: nothing is lost when the curves
# that were estimated from it are estimated anew.
timelines = Table(
    "wastenot_timelines",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("kernel_id", ForeignKey(kernels.c.id), nullable=False),
    Column("recorded_at", String(32), nullable=False),
    Column("content", LargeBinary, nullable=False),
)

# What was estimated from them: the errors that a kernel's rows have in common, and how they came about.
natural_curves = Table(
    "wastenot_natural_curves",
    metadata,
    Column("kernel_id", ForeignKey(kernels.c.id), primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
)

# How long the device takes to switch clocks, each time it was measured: a document wastenot.latency/1, of which the latest
# counts.
latencies = Table(
    "wastenot_latencies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("recorded_at", String(32), nullable=False),
    Column("document", Text, nullable=False),
)


class Subject(Protocol):
    """What a module of ``SUBJECTS`` offers besides its tables."""

    def in_brief(self, connection: Connection) -> dict[str, tuple[object, ...]]:
        """What a study holds of the subject, as fields of its summary.

        Raises:
            ValueError: what is stored cannot be.
        """


def subjects() -> tuple[Subject, ...]:
    """The subjects, once their tables are known."""
    return tuple(import_module(name) for name in SUBJECTS)


def all_tables() -> MetaData:
    """The tables of the study and of every subject."""
    subjects()
    return metadata
