"""Points of servers as a study's tables hold them, and those tables in brief."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, get_args

from sqlalchemy import Connection, Row, func, select

from wastenot.core.setting import AUTO, Setting
from wastenot.serving.tables import schema
from wastenot.serving.tables.records import LATENCIES, Percentiles, PointEvidence, ServingPoint
from wastenot.study.catalog import utc_now
from wastenot.study.sweep import SETTING

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
        finished_at: when it came to its end; ``None`` where it was broken off or is under way.
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
    return [getattr(setting, name) for name in SETTING]


def row_of(point: ServingPoint, run_id: int) -> dict[str, Any]:
    """A point as a row of the table, stored now."""
    values: dict[str, Any] = {name: getattr(point, name) for name in _AS_IT_IS}
    for latency in LATENCIES:
        values |= {f"{latency}_{name}": getattr(getattr(point, latency), name) for name in _PERCENTILES}
    values |= dict(zip(SETTING, setting_values(point.setting), strict=True))
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
        setting=Setting(*(getattr(row, name) for name in SETTING)),
        notes=tuple(json.loads(row.notes)),
        server=tuple(json.loads(row.server).items()),
    )
