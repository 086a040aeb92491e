"""What a study holds, in brief."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import fsum
from typing import Any

from sqlalchemy import Connection, func, select

from wastenot.study import schema
from wastenot.study.catalog import ImportSummary, StoredWorkload, StudyHeader, imports_of, kernels_of, settings_done
from wastenot.study.coverage import Coverage, SweepKind, coverage_of, intended_points
from wastenot.study.lease import Holder, holder_of
from wastenot.study.sweep import SETTING
from wastenot.study.sweep_log import recorded_sweeps
from wastenot.workloads.identity import EnergyState, Granularity, ModelRun


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """One sweep.

    Attributes:
        settings: how many besides auto.
        points: how many it was to measure, or to search; a point is a kernel at a setting, auto included.
        measured: how many of them there are.
        share: fraction that a search may measure.
        max_slowdown: of the plans that a search looks for.
        command: that resumes it, where known.
        started_at: in UTC.
        finished_at: when it came to its end; ``None`` where it was interrupted or is still running.
    """

    kind: SweepKind
    settings: int
    points: int
    measured: int
    share: float | None
    max_slowdown: float | None
    command: str | None
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """One workload.

    Attributes:
        run: model and shape, where known.
        kernels: how many, as are ``rows`` (measurements) and ``settings`` (different ones, auto among them).
        passes: in order of execution; empty where the data do not say.
        auto_time_s: time of one iteration at auto, from the mean of each kernel's baseline rows.
        auto_energy_j: energy of the same.
        imports: in order.
        coverage: how far its sweeps came, taken together; ``None`` where none was recorded.
        sweeps: in order.
        holder: who is measuring it now.
    """

    name: str
    state: EnergyState
    granularity: Granularity
    run: ModelRun | None
    origin: str
    kernels: int
    rows: int
    settings: int
    passes: tuple[str, ...]
    auto_time_s: float
    auto_energy_j: float
    imports: tuple[ImportSummary, ...]
    coverage: Coverage | None
    sweeps: tuple[SweepSummary, ...]
    holder: Holder | None


@dataclass(frozen=True, slots=True)
class StudySummary(StudyHeader):
    """A study.

    Attributes:
        workloads: in order of their first import.
        others: what else each subject keeps, in brief: ``jobs``, ``servers``, ``serving_runs``, ``cluster_runs``.
    """

    workloads: tuple[WorkloadSummary, ...]
    others: Mapping[str, tuple[Any, ...]]


def summarise_workload(connection: Connection, stored: StoredWorkload) -> WorkloadSummary:
    """A workload in brief, counted by the database so that the rows stay where they are."""
    imports, kernels, measurements = schema.imports, schema.kernels, schema.measurements
    workload_id = stored.id
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
        fsum(
            row.times * fsum(values[which] for values in baseline[row.id]) / max(1, len(baseline[row.id])) for row in members
        )
        for which in (0, 1)  # a sweep under way has not come to all of them yet
    )
    coverage, sweeps = _sweeps(connection, workload_id)
    return WorkloadSummary(
        name=stored.key.name,
        state=stored.key.state,
        granularity=stored.key.granularity,
        run=stored.run,
        origin=history[0].origin,
        kernels=len(members),
        rows=sum(entry.rows for entry in history),
        settings=connection.scalar(select(func.count()).select_from(distinct)) or 0,
        passes=tuple(dict.fromkeys(row.pass_name for row in members if row.pass_name is not None)),
        auto_time_s=time_s,
        auto_energy_j=energy_j,
        imports=history,
        coverage=coverage,
        sweeps=sweeps,
        holder=holder_of(connection, workload_id),
    )


def _sweeps(connection: Connection, workload_id: int) -> tuple[Coverage | None, tuple[SweepSummary, ...]]:
    recorded = recorded_sweeps(connection, workload_id)
    if not recorded:
        return None, ()
    names = [kernel.name for kernel in kernels_of(connection, workload_id)[1]]
    measured = settings_done(connection, workload_id).keys()
    sweeps = []
    for sweep in recorded:
        intent, points = sweep.intent, intended_points(sweep.intent, names)
        size = (len(intent.settings), len(points), len(points & measured))
        said = (intent.share, intent.max_slowdown, intent.command)
        sweeps.append(SweepSummary(intent.kind, *size, *said, sweep.started_at, sweep.finished_at))
    return coverage_of(recorded, names, measured), tuple(sweeps)
