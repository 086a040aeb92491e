"""Simulated runs of clusters as a study's table holds them, in brief."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from wastenot.serving.tables import schema


@dataclass(frozen=True, slots=True)
class ClusterRunSummary:
    """A simulated run of a cluster.

    Attributes:
        scenario: name.
        traffic: label.
        policy: by the name that scenarios use.
        seed: of the traffic.
        requests: that came.
        energy_j: of the run.
        worst_class: the least share of a class of requests that kept its deadlines.
        failed: whether a class missed the share that was asked for.
        recorded_at: in UTC.
    """

    scenario: str
    traffic: str
    policy: str
    seed: int
    requests: int
    energy_j: float
    worst_class: float
    failed: bool
    recorded_at: datetime


def summarise_cluster_runs(connection: Connection) -> tuple[ClusterRunSummary, ...]:
    """The runs by scenario, traffic, policy, seed and time.

    Raises:
        ValueError: what is stored cannot be.
    """
    runs = schema.cluster_runs
    found = []
    for row in connection.execute(select(runs).order_by(runs.c.digest)):
        try:
            record = json.loads(row.record)
            shares = [share for share in record["by_class"] if share is not None]
            numbers = int(record["requests"]), float(record["energy_j"]), float(min(shares)), bool(record["failed"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a run that is none ({error!r})") from error
        found.append(
            ClusterRunSummary(
                row.scenario, row.traffic, row.policy, row.seed, *numbers, datetime.fromisoformat(row.recorded_at)
            )
        )
    return tuple(sorted(found, key=lambda each: (each.scenario, each.traffic, each.policy, each.seed, each.recorded_at)))
