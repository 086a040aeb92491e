"""The tables of a study."""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from wastenot.study.serving_records import LATENCIES, Percentiles
from wastenot.study.sweep import NUMBERS

SCHEMA_VERSION = 9
"""Whoever changes these tables counts it up and adds a step to migration.py. Studies record sweeps, and who is measuring,
since 3, natural clocks since 4, switching latency since 5, jobs since 6, servers since 7 and simulated clusters since 8;
since 9 a workload says itself what it was captured on."""

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
# clock, memory clock and power limit; excluded points one of kernel names and positions in that list.
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

# Training jobs that come back; see jobs/tables/store.py. What decides how many epochs a run needs identifies a job.
jobs = Table(
    "wastenot_jobs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(255), nullable=False, unique=True),
    Column("target", Double),
    Column("higher_is_better", Boolean, nullable=False),
    Column("created_at", String(32), nullable=False),
)

# What was asked for last on each device: the rest of the terms. Batch sizes are a JSON list, settings one of core clock,
# memory clock and power limit.
job_terms = Table(
    "wastenot_job_terms",
    metadata,
    Column("job_id", ForeignKey(jobs.c.id), primary_key=True, autoincrement=False),
    Column("device", String(255), primary_key=True),
    Column("batch_sizes", Text, nullable=False),
    Column("default_batch_size", BigInteger, nullable=False),
    Column("max_epochs", BigInteger),
    Column("settings", Text, nullable=False),
    Column("eta", Double, nullable=False),
    Column("max_power_w", Double),
    Column("within_s", Double),
    Column("power_budget_w", Double),
    Column("asked_at", String(32), nullable=False),
)

# A run that is under way gives signs of life, as whoever measures a workload does; see lease.py.
job_runs = Table(
    "wastenot_job_runs",
    metadata,
    Column("job_id", ForeignKey(jobs.c.id), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("batch_size", BigInteger, nullable=False),
    Column("device", String(255), nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("epochs", BigInteger, nullable=False),
    Column("time_s", Double, nullable=False),
    Column("energy_j", Double),
    Column("core_mhz", Double),
    Column("memory_mhz", Double),
    Column("power_limit_w", Double),
    Column("metric", Double),
    Column("started_unix_s", Double, nullable=False),
    Column("why", Text, nullable=False),
    Column("seats", String(255)),
    Column("token", String(32), nullable=False),
    Column("host", String(255), nullable=False),
    Column("process", BigInteger, nullable=False),
    Column("process_started", String(32), nullable=False),
    Column("process_space", String(255), nullable=False),
    Column("heard_at", String(32), nullable=False),
)

# What a run that is spread over several machines has used on all but the first.
job_energy_elsewhere = Table(
    "wastenot_job_energy_elsewhere",
    metadata,
    Column("job_id", ForeignKey(jobs.c.id), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("machine", String(255), primary_key=True),
    Column("energy_j", Double, nullable=False),
)

# How fast a job trains on a device, as it was measured last.
job_speeds = Table(
    "wastenot_job_speeds",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("job_id", ForeignKey(jobs.c.id), nullable=False),
    Column("device", String(255), nullable=False),
    Column("batch_size", BigInteger, nullable=False),
    Column("core_mhz", Double),
    Column("memory_mhz", Double),
    Column("power_limit_w", Double),
    Column("epoch_time_s", Double, nullable=False),
    Column("power_w", Double),
    Column("time_error", Double, nullable=False),
    Column("power_error", Double, nullable=False),
    Column("measured_at", String(32), nullable=False),
)

# What was measured of servers, or imported, together; see serving_store.py. Points wanted are a JSON list of batch size
# (null where requests arrive at a rate), that rate, core clock, memory clock and power limit.
serving_runs = Table(
    "wastenot_serving_runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("source", Text, nullable=False),
    Column("sha256", String(64)),
    Column("wanted", Text, nullable=False),
    Column("command", Text),
    Column("started_at", String(32), nullable=False),
    Column("finished_at", String(32)),
)

# Operating points of servers. A latency has a column for each of its percentiles; notes and what the server says of itself
# are JSON.
serving_points = Table(
    "wastenot_serving_points",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey(serving_runs.c.id), nullable=False),
    Column("recorded_at", String(32), nullable=False),
    Column("model", Text, nullable=False),
    Column("gpu", String(255), nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("task", Text, nullable=False),
    Column("max_running", BigInteger, nullable=False),
    Column("mean_running", Double),
    Column("energy_per_token_j", Double),
    Column("energy_per_token_se_j", Double),
    Column("power_w", Double),
    Column("tokens_per_s", Double, nullable=False),
    Column("output_tokens", Double),
    *(
        Column(f"{latency}_{percentile}", Double)
        for latency in LATENCIES
        for percentile in (field.name for field in fields(Percentiles))
    ),
    Column("core_mhz", Double),
    Column("memory_mhz", Double),
    Column("power_limit_w", Double),
    Column("tensor_parallel", Integer, nullable=False),
    Column("expert_parallel", Integer, nullable=False),
    Column("data_parallel", Integer, nullable=False),
    Column("precision", String(64), nullable=False),
    Column("steady_s", Double),
    Column("evidence", String(16), nullable=False),
    Column("source", Text, nullable=False),
    Column("rate_per_s", Double),
    Column("why_unstable", Text, nullable=False),
    Column("notes", Text, nullable=False),
    Column("server", Text, nullable=False),
)

# Simulated runs of clusters, each a policy on a traffic with a seed; see cluster_store.py. The digest is of all that a run
# depends on, and the record a JSON document.
cluster_runs = Table(
    "wastenot_cluster_runs",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("scenario", Text, nullable=False),
    Column("policy", String(255), nullable=False),
    Column("traffic", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("record", Text, nullable=False),
    Column("recorded_at", String(32), nullable=False),
)
