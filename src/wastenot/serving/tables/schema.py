"""The tables of servers and of simulated clusters in a study."""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import Column, ForeignKey, Table

from wastenot.serving.tables.records import LATENCIES, Percentiles
from wastenot.study.columns import BigInteger, Double, Integer, String, Text
from wastenot.study.schema import metadata

# What was measured of servers, or imported, together; see store.py. Points wanted are a JSON list of batch size
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
