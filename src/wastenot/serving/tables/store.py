"""Servers in a study: their operating points, one by one as they are measured, or whole tables that others measured.

A study keeps servers beside its workloads. A point says itself which GPU and model it is of, so that a study may hold any
number of servers, also of GPUs other than the one that its kernels were measured on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from sqlalchemy import Connection, insert, select, update

from wastenot.core.errors import BadInputError, StudyError
from wastenot.serving.tables import schema
from wastenot.serving.tables.records import ServingPoint
from wastenot.serving.tables.rows import StoredRun, WantedPoint, row_of, setting_values, stored_points, stored_runs
from wastenot.study import catalog
from wastenot.study.database import DAMAGED
from wastenot.study.store import Study


@dataclass(frozen=True, slots=True)
class ServingRun:
    """A sweep of a server that is under way; get one from :meth:`ServingStore.begin`."""

    _store: ServingStore
    _id: int

    def keep(self, point: ServingPoint) -> None:
        """Store a point.

        Raises:
            StudyError: the study cannot be written.
        """
        with self._store.again() as connection:
            connection.execute(insert(schema.serving_points).values(row_of(point, self._id)))

    def finish(self) -> None:
        """Record that all points were measured, or dropped for a reason.

        Raises:
            StudyError: the study cannot be written.
        """
        runs = schema.serving_runs
        with self._store.again() as connection:
            connection.execute(update(runs).where(runs.c.id == self._id).values(finished_at=catalog.utc_now()))


@dataclass(frozen=True, slots=True)
class ServingStore:
    """The servers of a study.

    Args:
        study: an open one; let it be made (``create``) to store points in a new one.
    """

    study: Study

    def points(self, *, stable_only: bool = False) -> tuple[ServingPoint, ...]:
        """All points, in the order in which they were stored; nothing where there are none, or no study yet.

        Args:
            stable_only: leave out those that are no steady state to rely on.

        Raises:
            StudyError: the study cannot be read.
        """
        path = self.study.path
        if path is not None and not path.exists():
            return ()
        with self.study.database.reading() as connection:
            if catalog.read_header(connection, str(self.study)) is None:
                return ()
            try:
                found = stored_points(connection)
            except (ValueError, TypeError, AttributeError) as error:
                raise StudyError(f"{self.study}: {DAMAGED} ({error})") from error
        return tuple(point for point in found if point.is_stable) if stable_only else found

    def runs(self) -> tuple[StoredRun, ...]:
        """What was measured or imported together, in order.

        Raises:
            StudyError: the study cannot be read.
        """
        with self.study.database.reading() as connection:
            if catalog.read_header(connection, str(self.study)) is None:
                return ()
            try:
                return stored_runs(connection)
            except (ValueError, TypeError) as error:
                raise StudyError(f"{self.study}: {DAMAGED} ({error})") from error

    def add(self, points: Iterable[ServingPoint], *, source: str, sha256: str | None = None) -> int:
        """Store points, all of them or none.

        Args:
            points: to store.
            source: where they come from, such as the name of a file.
            sha256: of the content of that file, in hexadecimal.

        Returns:
            How many there were.

        Raises:
            BadInputError: the study holds this very content already, or there are no points.
            StudyError: the study cannot be written.
        """
        held = list(points)
        if not held:
            raise BadInputError(f"{source}: holds no points; nothing to store")
        runs = schema.serving_runs
        with self.study.database.writing() as connection:
            catalog.prepare(connection, str(self.study), catalog.NO_DEVICE)
            if sha256 is not None:
                same = connection.execute(select(runs).where(runs.c.sha256 == sha256)).first()
                if same is not None:
                    raise BadInputError(
                        f"{self.study}: holds this very content already (imported from {same.source} at "
                        f"{same.started_at}); nothing to do"
                    )
            now = catalog.utc_now()
            values = {"source": source, "sha256": sha256, "wanted": "[]", "started_at": now, "finished_at": now}
            run_id = catalog.inserted_id(connection, runs, **values)
            connection.execute(insert(schema.serving_points), [row_of(point, run_id) for point in held])
        return len(held)

    def begin(self, wanted: Sequence[WantedPoint], *, source: str, command: str | None = None) -> ServingRun:
        """Record what is going to be measured of a server, before any of it is.

        Args:
            wanted: points to measure.
            source: URL of the server.
            command: that resumes this, for the study to remember.

        Raises:
            StudyError: the study cannot be written.
        """
        text = json.dumps([[each.max_running, each.rate_per_s, *setting_values(each.setting)] for each in wanted])
        with self.study.database.writing() as connection:
            catalog.prepare(connection, str(self.study), catalog.NO_DEVICE)
            values = {"source": source, "wanted": text, "command": command, "started_at": catalog.utc_now()}
            return ServingRun(self, catalog.inserted_id(connection, schema.serving_runs, **values))

    def again(self) -> AbstractContextManager[Connection]:
        """Begin a writing transaction on what is there: a file that has gone is not made again."""
        return replace(self.study.database, create=False).writing()
