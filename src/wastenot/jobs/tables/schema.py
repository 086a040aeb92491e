"""The tables of jobs in a study."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Connection, ForeignKey, Table, select

from wastenot.study.columns import BigInteger, Double, Integer, String, Text
from wastenot.study.schema import metadata

# Training jobs that come back; see store.py. What decides how many epochs a run needs identifies a job.
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
    Column("learning_budget", Double),
    Column("asked_at", String(32), nullable=False),
)

# A run that is under way gives signs of life, as whoever measures a workload does; see study/lease.py.
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


def in_brief(connection: Connection) -> dict[str, tuple[object, ...]]:
    """Names of the jobs, in the order in which they came."""
    return {"jobs": tuple(connection.scalars(select(jobs.c.name).order_by(jobs.c.id)))}
