"""What a study holds, in brief: what ``wastenot show`` tells."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from math import fsum

from sqlalchemy import Connection, func, select

from wastenot.study.columns import SETTING
from wastenot.study.schema import imports, kernels, measurements, workloads


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """One import.

    Attributes:
        source: name of the file, or what else the rows came from.
        sha256: of the content, in hexadecimal; ``None`` where there was no file.
        rows: how many it brought.
        origin: measured, simulated, synthetic or forecast.
        imported_at: when, in UTC.
    """

    source: str
    sha256: str | None
    rows: int
    origin: str
    imported_at: datetime


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """One workload.

    Attributes:
        name: of the workload.
        origin: measured, simulated, synthetic or forecast.
        kernels: how many.
        rows: how many measurements.
        settings: how many different ones, auto among them.
        passes: in order of execution; empty where the data do not say.
        auto_time_s: time of one iteration at auto, from the mean of each kernel's baseline rows.
        auto_energy_j: energy of the same.
        imports: in order.
    """

    name: str
    origin: str
    kernels: int
    rows: int
    settings: int
    passes: tuple[str, ...]
    auto_time_s: float
    auto_energy_j: float
    imports: tuple[ImportSummary, ...]


@dataclass(frozen=True, slots=True)
class StudySummary:
    """A study.

    Attributes:
        device: that everything was taken on.
        schema_version: of the tables.
        created_by: the program that made it.
        created_at: when, in UTC.
        workloads: in order of their first import.
    """

    device: str
    schema_version: int
    created_by: str
    created_at: datetime
    workloads: tuple[WorkloadSummary, ...]


def summarise_workloads(connection: Connection) -> tuple[WorkloadSummary, ...]:
    """The workloads of a study, counted by the database so that the rows stay where they are."""
    found = connection.execute(select(workloads.c.id, workloads.c.name).order_by(workloads.c.id)).all()
    return tuple(_summarise(connection, row.id, row.name) for row in found)


def imports_of(connection: Connection, workload_id: int) -> tuple[ImportSummary, ...]:
    """The imports of a workload, in order."""
    found = connection.execute(select(imports).where(imports.c.workload_id == workload_id).order_by(imports.c.id))
    return tuple(
        ImportSummary(row.source, row.sha256, row.rows, row.origin, datetime.fromisoformat(row.imported_at)) for row in found
    )


def _summarise(connection: Connection, workload_id: int, name: str) -> WorkloadSummary:
    settings = [measurements.c[column] for column in SETTING]
    own = measurements.c.import_id.in_(select(imports.c.id).where(imports.c.workload_id == workload_id))
    distinct = select(*settings).where(own).distinct().subquery()
    auto = (
        select(measurements.c.kernel_id, measurements.c.time_s, measurements.c.energy_j)
        .where(own, *(column.is_(None) for column in settings))
    )  # fmt: skip
    baseline: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for row in connection.execute(auto):
        baseline[row.kernel_id].append((row.time_s, row.energy_j))
    members = connection.execute(
        select(kernels.c.id, kernels.c.count.label("times"), kernels.c["pass"].label("pass_name"))
        .where(kernels.c.workload_id == workload_id)
        .order_by(kernels.c.position)
    ).all()
    history = imports_of(connection, workload_id)
    time_s, energy_j = (
        fsum(row.times * fsum(run[which] for run in baseline[row.id]) / max(1, len(baseline[row.id])) for row in members)
        for which in (0, 1)  # a sweep under way has not come to all of them yet
    )
    return WorkloadSummary(
        name=name,
        origin=history[0].origin,
        kernels=len(members),
        rows=sum(entry.rows for entry in history),
        settings=connection.scalar(select(func.count()).select_from(distinct)) or 0,
        passes=tuple(dict.fromkeys(row.pass_name for row in members if row.pass_name is not None)),
        auto_time_s=time_s,
        auto_energy_j=energy_j,
        imports=history,
    )
