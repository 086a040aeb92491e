"""What a study holds besides the many rows: itself, its workloads, their kernels and imports, and all of that in brief."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Table, func, insert, inspect, select, update

from wastenot.core.errors import BadInputError, StudyError
from wastenot.core.origin import Origin
from wastenot.core.setting import Setting
from wastenot.core.version import own_version
from wastenot.study import schema
from wastenot.study.database import DAMAGED
from wastenot.study.migration import OLDEST_MIGRATED
from wastenot.study.sweep import SETTING, Kernel, quoted
from wastenot.workloads.identity import (
    ENERGY_STATES,
    GRANULARITIES,
    STATE_DESCRIPTIONS,
    EnergyState,
    Granularity,
    ModelRun,
    WorkloadKey,
)
from wastenot.workloads.shape import Shape

UNKNOWN_DEVICE = "unknown"
"""Stands for the device of the study that a sweep is added to."""

NO_DEVICE = ""
"""The device of a study that holds nothing but jobs, which may run on several: its first measurements decide."""

_STUDY_ID = 1
_SHAPE = tuple(field.name for field in fields(Shape))
_HOW_TO_SWEEP: dict[EnergyState, str] = {
    "ssp": "",
    "sse": " --at sse",
    "context": " --in-context",
    "natural": " --clocks natural",
}


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """One import.

    Attributes:
        source: name of the file, or what else the rows came from.
        sha256: of the content, in hexadecimal; ``None`` where there was no file.
        rows: how many it brought.
        imported_at: in UTC.
    """

    source: str
    sha256: str | None
    rows: int
    origin: str
    imported_at: datetime


@dataclass(frozen=True, slots=True)
class StudyHeader:
    """A study itself.

    Attributes:
        device: that all measurements were taken on; empty where there are none.
        created_by: the program that made it.
        created_at: in UTC.
    """

    device: str
    schema_version: int
    created_by: str
    created_at: datetime


def read_header(connection: Connection, label: str) -> StudyHeader | None:
    """The study itself, ``None`` where the database holds none yet.

    Args:
        connection: in a transaction.
        label: how messages name the study.

    Raises:
        StudyError: it is a file of another program, damaged, or written by another version of wastenot.
    """
    inspector = inspect(connection)
    if not inspector.has_table(schema.study.name):
        if connection.dialect.name == "sqlite" and inspector.get_table_names():
            raise StudyError(f"{label}: is not a study but another program's SQLite file; check the name")
        return None
    # The version first and alone: another one may have other columns beside it.
    found = connection.scalar(select(schema.study.c.schema_version))
    if not isinstance(found, int) or found < 1:
        raise StudyError(f"{label}: {DAMAGED}")
    if found > schema.SCHEMA_VERSION:
        raise StudyError(
            f"{label}: was written by a newer wastenot (schema {found}; this one reads up to {schema.SCHEMA_VERSION}); "
            "upgrade: pip install --upgrade wastenot"
        )
    if found < OLDEST_MIGRATED:
        raise StudyError(
            f"{label}: was written by an early wastenot (schema {found}; this one reads {schema.SCHEMA_VERSION}); measure "
            "again into a new study, or export its workloads with that version and import them here"
        )
    row = connection.execute(select(schema.study)).one()
    try:
        created_at = datetime.fromisoformat(row.created_at)
    except (ValueError, TypeError) as error:
        raise StudyError(f"{label}: {DAMAGED}") from error
    return StudyHeader(row.device, found, row.created_by, created_at)


def prepare(connection: Connection, label: str, device: str) -> str:
    """Make what is missing of the tables and the record of the study.

    Args:
        connection: in a writing transaction.
        label: how messages name the study.
        device: that the new rows were taken on; ``unknown`` stands for that of the study, and none is of no rows.

    Returns:
        The device of the study.

    Raises:
        BadInputError: it is another device.
        StudyError: as :func:`read_header`.
    """
    header = read_header(connection, label)
    schema.all_tables().create_all(connection)  # does nothing where they are there
    if header is None:
        values = {"schema_version": schema.SCHEMA_VERSION, "device": device}
        values |= {"created_by": f"wastenot {own_version()}", "created_at": utc_now()}
        connection.execute(insert(schema.study).values(id=_STUDY_ID, **values))
        return device
    if device == NO_DEVICE:
        return header.device
    if header.device == NO_DEVICE:
        connection.execute(update(schema.study).values(device=device))
        return device
    if device not in (header.device, UNKNOWN_DEVICE):
        raise BadInputError(
            f"{label}: device: holds measurements of {quoted(header.device)}, not of {quoted(device)}; "
            "a study is of one device: name another study"
        )
    return header.device


def keep_latency(connection: Connection, document: str) -> None:
    """Store how long the device takes to switch clocks, as it was measured."""
    connection.execute(insert(schema.latencies).values(recorded_at=utc_now(), document=document))


def latest_latency(connection: Connection) -> str | None:
    """How long the device takes to switch clocks, as it was measured last."""
    table = schema.latencies
    return connection.scalar(select(table.c.document).order_by(table.c.id.desc()).limit(1))


@dataclass(frozen=True, slots=True)
class StoredWorkload:
    """A workload in the store: its id there, what identifies it, its model and shape, and what it was captured on."""

    id: int
    key: WorkloadKey
    run: ModelRun | None
    captured_on: str | None


def stored_workloads(connection: Connection) -> tuple[StoredWorkload, ...]:
    """The workloads, in order of their first import.

    Raises:
        ValueError: what is stored cannot be.
    """
    stored = []
    for row in connection.execute(select(schema.workloads).order_by(schema.workloads.c.id)):
        if row.state not in ENERGY_STATES or row.granularity not in GRANULARITIES:
            raise ValueError(f"a workload in state {row.state!r} by {row.granularity!r}")
        run = None if row.model is None else ModelRun(row.model, Shape(*(getattr(row, name) for name in _SHAPE)))
        stored.append(StoredWorkload(row.id, WorkloadKey(row.name, row.state, row.granularity), run, row.captured_on))
    return tuple(stored)


def find_workload(connection: Connection, key: WorkloadKey) -> int | None:
    """The id of a workload; ``None`` where there is none."""
    table = schema.workloads
    same = (table.c[name] == value for name, value in asdict(key).items())
    return connection.scalar(select(table.c.id).where(*same))


def add_workload(connection: Connection, key: WorkloadKey, run: ModelRun | None) -> int:
    """Store a workload that is not there yet; returns its id."""
    shape = {} if run is None else {"model": run.model} | asdict(run.shape)
    return inserted_id(connection, schema.workloads, **asdict(key), **shape)


def choose_workload(
    stored: Sequence[StoredWorkload],
    study: str,
    name: str | None,
    state: EnergyState | None,
    granularity: Granularity | None,
    *,
    finer: bool = False,
) -> StoredWorkload:
    """The one of a study's workloads that is meant.

    Args:
        stored: at least one.
        study: how messages name it.
        name: of the workload; may be left out where the study holds only one, in however many states and granularities.
        state: of its energies; by default steady power where it was measured so, else the state measured first.
        granularity: that it was measured by; by default the finest that there is.
        finer: whether measurements of another granularity will do, from the finest on.

    Raises:
        BadInputError: there is no such workload, or there are several and none is named.
    """
    names = list(dict.fromkeys(one.key.name for one in stored))
    listed = ", ".join(map(quoted, names))
    if name is None:
        if len(names) > 1:
            raise BadInputError(f"{study}: `workload`: holds {len(names)}: {listed}; name one: `workload` NAME")
        name = names[0]
    if name not in names:
        nearest = get_close_matches(name, names, n=1)
        meant = f"did you mean {quoted(nearest[0])}? It holds" if nearest else "it holds"
        raise BadInputError(f"{study}: `workload`: there is no {quoted(name)}; {meant} {listed}")
    held = [one for one in stored if one.key.name == name]
    states = {one.key.state for one in held}
    wanted = state or ("ssp" if "ssp" in states else held[0].key.state)
    if wanted not in states:
        raise BadInputError(
            f"{study}: workload {quoted(name)}: was not measured with {STATE_DESCRIPTIONS[wanted]}; "
            f"measure it: wastenot kernel sweep {name} --device DEVICE --study {study}{_HOW_TO_SWEEP[wanted]}"
        )
    by = {one.key.granularity: one for one in held if one.key.state == wanted}
    if granularity in by:
        return by[granularity]
    if granularity is not None and not finer:
        raise BadInputError(
            f"{study}: workload {quoted(name)}: was measured by {' and by '.join(by)}, not by {granularity}; "
            f"measure it: wastenot kernel sweep {name} --device DEVICE --study {study} --granularity {granularity}"
        )
    return next(by[each] for each in reversed(GRANULARITIES) if each in by)


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
    settings = [rows.c[name] for name in SETTING]
    query = (
        select(schema.kernels.c.name, *settings, func.count())
        .join(schema.kernels, rows.c.kernel_id == schema.kernels.c.id)
        .where(schema.kernels.c.workload_id == workload)
        .group_by(schema.kernels.c.name, *settings)
    )
    return {(name, Setting.of_numbers(*setting)): times for name, *setting, times in connection.execute(query)}


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
                    f"{what}: of kernel {quoted(kernel.name)} is {now_!r}, but {before!r} in the workload "
                    f"{quoted(workload_name)}; make them agree, or name another workload"
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


def add_import(
    connection: Connection, workload_id: int, source: str, origin: Origin, *, rows: int = 0, sha256: str | None = None
) -> int:
    """Record an import of a workload's rows, as of now; returns its id."""
    values = {"workload_id": workload_id, "source": source, "sha256": sha256, "rows": rows, "origin": origin}
    return inserted_id(connection, schema.imports, **values, imported_at=utc_now())


def utc_now() -> str:
    """This moment as the tables hold it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def store_captured_on(connection: Connection, workload: int, device: str) -> None:
    """Store the kind of device that a workload was captured on, where none is stored yet."""
    table = schema.workloads
    unknown = (table.c.id == workload) & table.c.captured_on.is_(None)
    connection.execute(update(table).where(unknown).values(captured_on=device))


def imports_of(connection: Connection, workload_id: int) -> tuple[ImportSummary, ...]:
    """The imports of a workload, in order."""
    imports = schema.imports
    found = connection.execute(select(imports).where(imports.c.workload_id == workload_id).order_by(imports.c.id))
    return tuple(
        ImportSummary(row.source, row.sha256, row.rows, row.origin, datetime.fromisoformat(row.imported_at)) for row in found
    )
