"""Measurements at natural clocks in a study: timelines as they were seen, and what was estimated from them.

Each run is stored in a transaction of its own, so a kill loses at most the one in flight. What is estimated of a kernel,
rows and the errors that they have in common, replaces what was estimated before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, update

from wastenot.study import schema
from wastenot.study.catalog import utc_now
from wastenot.study.packing import Packed, pack, unpack
from wastenot.study.recorder import Measurement, Recorder, insert_measurements
from wastenot.study.sweep import CurveErrors

_CURVE_ARRAYS = ("core_mhz", "log_time_cov", "log_power_cov")


@dataclass(frozen=True, slots=True, eq=False)
class KeptTimeline:
    """One run as it was stored.

    Attributes:
        kernel: that it was about.
        recorded_at: in UTC.
        content: what was seen.
    """

    kernel: str
    recorded_at: datetime
    content: Packed


def keep_timeline(recorder: Recorder, kernel: str, content: Packed) -> None:
    """Store what was seen in a run; when this returns, it is on disk.

    Raises:
        StudyError: the study cannot be written, or another process has taken over.
    """
    values = {"kernel_id": recorder.kernel_ids[kernel], "recorded_at": utc_now(), "content": pack(content)}
    with recorder.writing() as connection:
        connection.execute(insert(schema.timelines).values(**values))


def keep_curve(recorder: Recorder, kernel: str, rows: Sequence[Measurement], content: Packed) -> None:
    """Store what was estimated of a kernel, in place of what was estimated before.

    Args:
        recorder: of the study.
        kernel: its name.
        rows: at auto and at the clocks of the curve.
        content: the arrays of :class:`~wastenot.study.sweep.CurveErrors`, and how they came about.

    Raises:
        StudyError: the study cannot be written, or another process has taken over.
    """
    rows_of, trials, imports, curves = schema.measurements, schema.trials, schema.imports, schema.natural_curves
    kernel_id = recorder.kernel_ids[kernel]
    with recorder.writing() as connection:
        old = connection.execute(
            select(rows_of.c.import_id, rows_of.c.position).where(rows_of.c.kernel_id == kernel_id)
        ).all()
        for import_id, position in old:
            for table in (trials, rows_of):
                connection.execute(delete(table).where(table.c.import_id == import_id, table.c.position == position))
        own = rows_of.c.import_id == recorder.import_id
        begin = connection.scalar(select(func.coalesce(func.max(rows_of.c.position) + 1, 0)).where(own)) or 0
        insert_measurements(connection, recorder.import_id, begin, [(kernel_id, row) for row in rows])
        for import_id in {recorder.import_id, *(row.import_id for row in old)}:
            number = connection.scalar(select(func.count()).where(rows_of.c.import_id == import_id))
            connection.execute(update(imports).where(imports.c.id == import_id).values(rows=number))
        connection.execute(delete(curves).where(curves.c.kernel_id == kernel_id))
        connection.execute(insert(curves).values(kernel_id=kernel_id, content=pack(content)))
    for point in [point for point in recorder.done if point[0] == kernel]:
        del recorder.done[point]
    recorder.done.update((kernel, row.setting) for row in rows)


def read_timelines(connection: Connection, workload_id: int, kernel: str | None = None) -> Iterator[KeptTimeline]:
    """The timelines of a workload in the order they were recorded, or only those of one of its kernels.

    Raises:
        ValueError: what is stored cannot be.
    """
    table, kernels = schema.timelines, schema.kernels
    query = (
        select(kernels.c.name, table.c.recorded_at, table.c.content)
        .join(kernels, kernels.c.id == table.c.kernel_id)
        .where(kernels.c.workload_id == workload_id, *(() if kernel is None else (kernels.c.name == kernel,)))
        .order_by(table.c.id)
    )
    for row in connection.execute(query):
        yield KeptTimeline(row.name, datetime.fromisoformat(row.recorded_at), unpack(row.content))


def read_curves(connection: Connection, workload_id: int) -> dict[str, Packed]:
    """What was estimated of each kernel besides its rows, by its name.

    Raises:
        ValueError: what is stored cannot be.
    """
    table, kernels = schema.natural_curves, schema.kernels
    query = (
        select(kernels.c.name, table.c.content)
        .join(kernels, kernels.c.id == table.c.kernel_id)
        .where(kernels.c.workload_id == workload_id)
        .order_by(kernels.c.position)
    )
    return {row.name: unpack(row.content) for row in connection.execute(query)}


def curve_errors(connection: Connection, workload_id: int) -> dict[str, CurveErrors]:
    """The errors that the rows of each kernel have in common, by its name; raises as :func:`read_curves`."""
    found = {}
    for kernel, content in read_curves(connection, workload_id).items():
        arrays = [content.arrays.get(name) for name in _CURVE_ARRAYS]
        if any(array is None for array in arrays):
            raise ValueError(f"a curve without {', '.join(_CURVE_ARRAYS)}")
        found[kernel] = CurveErrors(*arrays)  # type: ignore[arg-type]  # none is None
    return found
