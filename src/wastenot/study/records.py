"""The few records around the many rows: the study itself, its workloads and their kernels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Table, func, insert, inspect, select, update

from wastenot.errors import BadInputError, StudyError
from wastenot.setting import Setting
from wastenot.study import schema
from wastenot.study.columns import shown
from wastenot.study.faults import DAMAGED
from wastenot.study.sweep import Kernel
from wastenot.study.sweep_file import UNKNOWN_DEVICE
from wastenot.version import own_version

_STUDY_ID = 1


@dataclass(frozen=True, slots=True)
class Header:
    """What is recorded of a study as a whole.

    Attributes:
        schema_version: of its tables.
        device: that everything was taken on.
        created_by: the program that made it.
        created_at: when, in UTC.
    """

    schema_version: int
    device: str
    created_by: str
    created_at: datetime


def read_header(connection: Connection, label: str) -> Header | None:
    """The record of the study, ``None`` where the database holds none yet.

    Args:
        connection: in a transaction.
        label: how messages name the study.

    Raises:
        StudyError: it is a file of another program, damaged, or written by a newer wastenot.
    """
    inspector = inspect(connection)
    if not inspector.has_table(schema.study.name):
        if connection.dialect.name == "sqlite" and inspector.get_table_names():
            raise StudyError(f"{label}: is not a study but another program's SQLite file; check the name")
        return None
    # The version first and alone: a newer one may have other columns beside it.
    found = connection.scalar(select(schema.study.c.schema_version))
    if not isinstance(found, int) or found < 1:
        raise StudyError(f"{label}: {DAMAGED}")
    if found > schema.SCHEMA_VERSION:
        raise StudyError(
            f"{label}: was written by a newer wastenot (schema {found}; this one knows {schema.SCHEMA_VERSION}); "
            "upgrade: pip install --upgrade wastenot"
        )
    row = connection.execute(select(schema.study)).one()
    try:
        created_at = datetime.fromisoformat(row.created_at)
    except (ValueError, TypeError) as error:
        raise StudyError(f"{label}: {DAMAGED}") from error
    return Header(found, row.device, row.created_by, created_at)


def prepare(connection: Connection, label: str, device: str) -> str:
    """Make what is missing of the tables and the record of the study.

    Args:
        connection: in a writing transaction.
        label: how messages name the study.
        device: that the new rows were taken on; ``unknown`` stands for that of the study.

    Returns:
        The device of the study.

    Raises:
        BadInputError: it is another device.
        StudyError: as :func:`read_header`.
    """
    header = read_header(connection, label)
    schema.metadata.create_all(connection)
    if header is None:
        values = {"schema_version": schema.SCHEMA_VERSION, "device": device}
        values |= {"created_by": f"wastenot {own_version()}", "created_at": now()}
        connection.execute(insert(schema.study).values(id=_STUDY_ID, **values))
        return device
    if device not in (header.device, UNKNOWN_DEVICE):
        raise BadInputError(
            f"{label}: device: holds measurements of {shown(header.device)}, not of {shown(device)}; "
            "a study is of one device: name another study"
        )
    if header.schema_version < schema.SCHEMA_VERSION:
        connection.execute(update(schema.study).values(schema_version=schema.SCHEMA_VERSION))
    return header.device


def workload_names(connection: Connection) -> tuple[str, ...]:
    """The names of the workloads, in order of their first import."""
    return tuple(connection.scalars(select(schema.workloads.c.name).order_by(schema.workloads.c.id)))


def workload_id(connection: Connection, name: str) -> int | None:
    """The id of a workload; ``None`` where there is none of that name."""
    return connection.scalar(select(schema.workloads.c.id).where(schema.workloads.c.name == name))


def kernels_of(connection: Connection, workload: int) -> tuple[NDArray[np.int64], tuple[Kernel, ...]]:
    """The kernels of a workload in order of execution: their ids, shape (kernels,), and themselves."""
    table = schema.kernels
    rows = connection.execute(
        select(table.c.id, table.c.name, table.c.count, table.c["pass"], table.c.block)
        .where(table.c.workload_id == workload)
        .order_by(table.c.position)
    ).all()
    return np.array([row[0] for row in rows], dtype=np.int64), tuple(Kernel(*row[1:]) for row in rows)


def settings_done(connection: Connection, workload: int) -> dict[tuple[str, Setting], int]:
    """How often each kernel of a workload was measured at each setting."""
    rows = schema.measurements
    query = (
        select(schema.kernels.c.name, rows.c.core_mhz, rows.c.memory_mhz, rows.c.power_limit_w, func.count())
        .join(schema.kernels, rows.c.kernel_id == schema.kernels.c.id)
        .where(schema.kernels.c.workload_id == workload)
        .group_by(schema.kernels.c.name, rows.c.core_mhz, rows.c.memory_mhz, rows.c.power_limit_w)
    )
    return {(name, Setting(*setting)): times for name, *setting, times in connection.execute(query)}


def store_kernels(
    connection: Connection, kernels: tuple[Kernel, ...], workload_name: str, workload: int
) -> NDArray[np.int64]:
    """Store kernels that the workload does not have yet, after those that it has.

    Args:
        connection: in a writing transaction.
        kernels: in order of execution.
        workload_name: for messages.
        workload: id of the workload.

    Returns:
        The id of each of ``kernels``; shape (kernels,).

    Raises:
        BadInputError: a kernel differs in count, pass or block from the one of that name that is there.
    """
    stored = {kernel.name: kernel for kernel in kernels_of(connection, workload)[1]}
    for kernel in kernels:
        there = stored.get(kernel.name, kernel)
        for what, now_, before in (
            ("count", kernel.count, there.count),
            ("pass", kernel.pass_name, there.pass_name),
            ("block", kernel.block, there.block),
        ):
            if now_ != before:
                raise BadInputError(
                    f"{what}: of kernel {shown(kernel.name)} is {now_!r}, but {before!r} in the workload "
                    f"{shown(workload_name)}; make them agree, or name another workload"
                )
    new = [kernel for kernel in kernels if kernel.name not in stored]
    if new:
        rows = [
            {
                "workload_id": workload,
                "position": position,
                "name": kernel.name,
                "count": kernel.count,
                "pass": kernel.pass_name,
                "block": kernel.block,
            }
            for position, kernel in enumerate(new, len(stored))
        ]
        connection.execute(insert(schema.kernels), rows)
    ids, members = kernels_of(connection, workload)
    by_name = dict(zip((kernel.name for kernel in members), ids.tolist(), strict=True))
    return np.array([by_name[kernel.name] for kernel in kernels], dtype=np.int64)


def inserted_id(connection: Connection, table: Table, **values: object) -> int:
    """Insert one record and return the id that the database gave it."""
    key = connection.execute(insert(table).values(**values)).inserted_primary_key
    assert key is not None
    return int(key[0])


def now() -> str:
    """The time in UTC, to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
