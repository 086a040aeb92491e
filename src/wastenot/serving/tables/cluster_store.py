"""Simulated runs of clusters in a study: each is kept as it ends, and found again by what it was made from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select

from wastenot.serving.tables import schema
from wastenot.serving.tables.store import reading
from wastenot.study import catalog
from wastenot.study.store import Study


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
            raise ValueError(f"not a valid run ({error!r})") from error
        found.append(
            ClusterRunSummary(
                row.scenario, row.traffic, row.policy, row.seed, *numbers, datetime.fromisoformat(row.recorded_at)
            )
        )
    return tuple(sorted(found, key=lambda each: (each.scenario, each.traffic, each.policy, each.seed, each.recorded_at)))


_AT_ONCE = 500
"""Digests that are asked for together: databases limit the parameters of a statement."""


@dataclass(frozen=True, slots=True)
class StoredClusterRun:
    """A run that has ended.

    Attributes:
        digest: of all that it depends on, SHA-256 in hexadecimal.
        scenario: name, for people.
        policy: by the name that scenarios use.
        traffic: label.
        seed: of it.
        record: what became of it, as JSON.
    """

    digest: str
    scenario: str
    policy: str
    traffic: str
    seed: int
    record: str


@dataclass(frozen=True, slots=True)
class ClusterStore:
    """The simulated runs of a study.

    Args:
        study: an open one; let it be made (``create``) to keep runs in a new one.
    """

    study: Study

    def find(self, digests: Iterable[str]) -> dict[str, str]:
        """Records of those of the runs that have ended, by digest.

        Raises:
            StudyError: the study cannot be read.
        """
        runs, wanted, found = schema.cluster_runs, list(digests), dict[str, str]()
        with reading(self.study) as connection:
            if connection is None:
                return found
            for first in range(0, len(wanted), _AT_ONCE):
                some = runs.c.digest.in_(wanted[first : first + _AT_ONCE])
                for row in connection.execute(select(runs.c.digest, runs.c.record).where(some)):
                    if not isinstance(row.record, str):
                        raise ValueError("a run without a record")
                    found[row.digest] = row.record
        return found

    def keep(self, run: StoredClusterRun) -> None:
        """Store a run; one that is already stored stays as it is.

        Raises:
            StudyError: the study cannot be written.
        """
        runs = schema.cluster_runs
        with self.study.database.writing() as connection:
            catalog.prepare(connection, str(self.study), catalog.NO_DEVICE)
            if connection.execute(select(runs.c.digest).where(runs.c.digest == run.digest)).first() is None:
                connection.execute(insert(runs).values(**asdict(run), recorded_at=catalog.utc_now()))
