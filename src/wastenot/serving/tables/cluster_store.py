"""Simulated runs of clusters in a study: each is kept as it ends, and found again by what it was made from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import insert, select

from wastenot.core.errors import StudyError
from wastenot.serving.tables import schema
from wastenot.study import catalog
from wastenot.study.database import DAMAGED
from wastenot.study.store import Study

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
        path = self.study.path
        if path is not None and not path.exists():
            return {}
        runs, wanted, found = schema.cluster_runs, list(digests), {}
        with self.study.database.reading() as connection:
            if catalog.read_header(connection, str(self.study)) is None:
                return {}
            for first in range(0, len(wanted), _AT_ONCE):
                some = runs.c.digest.in_(wanted[first : first + _AT_ONCE])
                for row in connection.execute(select(runs.c.digest, runs.c.record).where(some)):
                    if not isinstance(row.record, str):
                        raise StudyError(f"{self.study}: {DAMAGED} (a run without a record)")
                    found[row.digest] = row.record
        return found

    def keep(self, run: StoredClusterRun) -> None:
        """Store a run; one that is there already stays as it is.

        Raises:
            StudyError: the study cannot be written.
        """
        runs = schema.cluster_runs
        with self.study.database.writing() as connection:
            catalog.prepare(connection, str(self.study), catalog.NO_DEVICE)
            if connection.execute(select(runs.c.digest).where(runs.c.digest == run.digest)).first() is None:
                connection.execute(
                    insert(runs).values(
                        digest=run.digest, scenario=run.scenario, policy=run.policy, traffic=run.traffic, seed=run.seed,
                        record=run.record, recorded_at=catalog.utc_now(),
                    )
                )  # fmt: skip
