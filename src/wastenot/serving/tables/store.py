"""Servers in a study: their operating points, one by one as they are measured, or whole tables that others measured.

A study keeps servers beside its workloads. A point says itself which GPU and model it is of, so that a study may hold any
number of servers, also of GPUs other than the one that its kernels were measured on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, get_args

from sqlalchemy import Connection, Row, func, insert, select, update

from wastenot.core.errors import BadInputError, StudyError
from wastenot.core.setting import AUTO, Setting
from wastenot.serving.tables import schema
from wastenot.serving.tables.records import LATENCIES, Percentiles, PointEvidence, ServingPoint
from wastenot.study import catalog
from wastenot.study.catalog import utc_now
from wastenot.study.database import DAMAGED
from wastenot.study.store import Study

_SETTING = ("core_mhz", "memory_mhz", "power_limit_w")  # of servers, whose points have no workload power profile
_PERCENTILES = tuple(field.name for field in fields(Percentiles))
_AS_IT_IS = tuple(
    field.name for field in fields(ServingPoint) if field.name not in {*LATENCIES, "setting", "notes", "server"}
)


@dataclass(frozen=True, slots=True)
class WantedPoint:
    """A point that a sweep of a server is to measure.

    Attributes:
        max_running: requests to keep running; ``None`` where they arrive at a rate.
        rate_per_s: at which they arrive; ``None`` where a number is kept running.
        setting: of the GPUs.
    """

    max_running: int | None
    rate_per_s: float | None = None
    setting: Setting = AUTO

    def __str__(self) -> str:
        load = f"batch {self.max_running}" if self.rate_per_s is None else f"{self.rate_per_s:g} requests/s"
        return load if self.setting.is_auto else f"{load} at {self.setting}"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What was measured of a server, or imported, together.

    Attributes:
        source: URL of the server, or name of the file.
        wanted: points that were to be measured; empty for an import.
        points: how many there are.
        command: that resumes it, where known.
        started_at: in UTC.
        finished_at: when it came to its end; ``None`` where it was interrupted or is still running.
    """

    source: str
    wanted: tuple[WantedPoint, ...]
    points: int
    command: str | None
    started_at: datetime
    finished_at: datetime | None


def stored_runs(connection: Connection) -> tuple[StoredRun, ...]:
    """What was measured or imported together, in order.

    Raises:
        ValueError: what is stored cannot be.
    """
    runs, points = schema.serving_runs, schema.serving_points
    counts = select(points.c.run_id, func.count().label("points")).group_by(points.c.run_id)
    held: dict[int, int] = {row.run_id: row.points for row in connection.execute(counts)}
    return tuple(
        StoredRun(
            source=row.source,
            wanted=tuple(WantedPoint(each[0], each[1], Setting(*each[2:])) for each in json.loads(row.wanted)),
            points=held.get(row.id, 0),
            command=row.command,
            started_at=datetime.fromisoformat(row.started_at),
            finished_at=None if row.finished_at is None else datetime.fromisoformat(row.finished_at),
        )
        for row in connection.execute(select(runs).order_by(runs.c.id))
    )


@dataclass(frozen=True, slots=True)
class ServingSummary:
    """The points of one model on one kind of GPU under one load.

    Attributes:
        points: how many there are.
        unstable: how many of them are no steady states to rely on.
        max_running: least and greatest batch size.
        settings: how many different ones.
        energy_per_token_j: least of the stable ones; ``None`` where none was metered.
        itl_p50_s: least median time between tokens of the stable ones, where known.
    """

    model: str
    gpu: str
    gpus: int
    task: str
    evidence: PointEvidence
    points: int
    unstable: int
    max_running: tuple[int, int]
    settings: int
    energy_per_token_j: float | None
    itl_p50_s: float | None


def summarise_servers(connection: Connection) -> tuple[ServingSummary, ...]:
    """The points in brief, in the order of the first of each kind.

    Raises:
        ValueError: what is stored cannot be.
    """
    kinds: dict[tuple[str, str, int, str, PointEvidence], list[ServingPoint]] = {}
    for point in stored_points(connection):
        kinds.setdefault((point.model, point.gpu, point.gpus, point.task, point.evidence), []).append(point)
    return tuple(_summary(kind, points) for kind, points in kinds.items())


def _summary(kind: tuple[str, str, int, str, PointEvidence], points: list[ServingPoint]) -> ServingSummary:
    stable = [point for point in points if point.is_stable]
    batches = [point.max_running for point in points]
    energies = [point.energy_per_token_j for point in stable if point.energy_per_token_j is not None]
    gaps = [point.itl.p50_s for point in stable if point.itl.p50_s is not None]
    return ServingSummary(
        *kind,
        points=len(points),
        unstable=len(points) - len(stable),
        max_running=(min(batches), max(batches)),
        settings=len({point.setting for point in points}),
        energy_per_token_j=min(energies, default=None),
        itl_p50_s=min(gaps, default=None),
    )


def stored_points(connection: Connection) -> tuple[ServingPoint, ...]:
    """All points, in the order in which they were stored.

    Raises:
        ValueError: what is stored cannot be.
    """
    points = schema.serving_points
    return tuple(point_of(row) for row in connection.execute(select(points).order_by(points.c.id)))


def setting_values(setting: Setting) -> list[float | None]:
    """The parts of a setting, in the order of their columns."""
    return [getattr(setting, name) for name in _SETTING]


def row_of(point: ServingPoint, run_id: int) -> dict[str, Any]:
    """A point as a row of the table, stored now."""
    values: dict[str, Any] = {name: getattr(point, name) for name in _AS_IT_IS}
    for latency in LATENCIES:
        values |= {f"{latency}_{name}": getattr(getattr(point, latency), name) for name in _PERCENTILES}
    values |= dict(zip(_SETTING, setting_values(point.setting), strict=True))
    values |= {"notes": json.dumps(point.notes), "server": json.dumps(dict(point.server))}
    return values | {"run_id": run_id, "recorded_at": utc_now()}


def point_of(row: Row[Any]) -> ServingPoint:
    """The point that a row holds.

    Raises:
        ValueError: the row cannot be one.
    """
    if row.evidence not in get_args(PointEvidence):
        raise ValueError(f"a point that is {row.evidence!r}")
    latencies: dict[str, Any] = {
        latency: Percentiles(*(getattr(row, f"{latency}_{name}") for name in _PERCENTILES)) for latency in LATENCIES
    }
    return ServingPoint(
        **{name: getattr(row, name) for name in _AS_IT_IS},
        **latencies,
        setting=Setting(*(getattr(row, name) for name in _SETTING)),
        notes=tuple(json.loads(row.notes)),
        server=tuple(json.loads(row.server).items()),
    )


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


@contextmanager
def reading(study: Study) -> Iterator[Connection | None]:
    """A transaction that reads a study inside the context; ``None`` where there is none yet, or it holds nothing.

    Raises:
        StudyError: the study cannot be read, or holds what cannot be.
    """
    if study.path is not None and not study.path.exists():
        yield None
        return
    with study.database.reading() as connection:
        if catalog.read_header(connection, str(study)) is None:
            yield None
            return
        try:
            yield connection
        except (ValueError, TypeError, AttributeError) as error:
            raise StudyError(f"{study}: {DAMAGED} ({error})") from error


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
        with reading(self.study) as connection:
            found = () if connection is None else stored_points(connection)
        return tuple(point for point in found if point.is_stable) if stable_only else found

    def runs(self) -> tuple[StoredRun, ...]:
        """What was measured or imported together, in order; raises like :meth:`points`."""
        with reading(self.study) as connection:
            return () if connection is None else stored_runs(connection)

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
                        f"{self.study}: already holds this content (imported from {same.source} at "
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
