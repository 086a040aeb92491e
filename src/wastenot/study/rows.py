"""The many rows of a study, in and out, each database in its fastest way that keeps every float exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Select, func, insert, select
from sqlalchemy.exc import DBAPIError

from wastenot.core.arrays import FloatArray
from wastenot.study.schema import imports, measurements
from wastenot.study.sweep import NUMBERS, Sweep

_CHUNK_ROWS = 1 << 14
_ROWS_AT_ONCE = 64  # in one statement of SQLite, which takes at least 999 values in one


def insert_rows(connection: Connection, sweep: Sweep, import_id: int, kernel_ids: NDArray[np.int64]) -> None:
    """Store the rows of a sweep.

    Args:
        connection: in a transaction.
        sweep: the rows.
        import_id: the import that they belong to.
        kernel_ids: the id in the store of each of ``sweep.kernels``; shape (kernels,).
    """
    if connection.dialect.name == "sqlite":
        _insert_many(connection, sweep, import_id, kernel_ids)
    elif connection.dialect.driver == "psycopg":
        _copy(connection, _present(sweep), _chunks(sweep, import_id, kernel_ids))
    else:
        insert_portably(connection, sweep, import_id, kernel_ids)


def insert_portably(connection: Connection, sweep: Sweep, import_id: int, kernel_ids: NDArray[np.int64]) -> None:
    """As :func:`insert_rows`, in the way that every database understands."""
    names = _present(sweep)
    for columns in _chunks(sweep, import_id, kernel_ids):
        rows = zip(*columns, strict=True)
        connection.execute(insert(measurements), [dict(zip(names, row, strict=True)) for row in rows])


def _insert_many(connection: Connection, sweep: Sweep, import_id: int, kernel_ids: NDArray[np.int64]) -> None:
    names = _present(sweep)
    into = f"INSERT INTO {measurements.name} ({', '.join(names)}) VALUES "
    row, width = f"({', '.join('?' * len(names))})", len(names)
    for columns in _chunks(sweep, import_id, kernel_ids):
        rows = len(columns[0])
        values: list[Any] = [None] * (rows * width)
        for place, column in enumerate(columns):
            values[place::width] = column
        for first, end, at_once in ((0, rows - rows % _ROWS_AT_ONCE, _ROWS_AT_ONCE), (rows - rows % _ROWS_AT_ONCE, rows, 1)):
            step = at_once * width
            batches = [tuple(values[start : start + step]) for start in range(first * width, end * width, step)]
            if batches:
                connection.exec_driver_sql(into + ", ".join([row] * at_once), batches)


def select_rows(connection: Connection, workload_id: int) -> tuple[NDArray[np.int64], dict[str, FloatArray]]:
    """Fetch the rows of a workload, in the order in which they were stored.

    Args:
        connection: in a transaction.
        workload_id: of the workload in the store.

    Returns:
        The id of the kernel of each row, shape (rows,), and the numbers by column, NaN where there is none.
    """
    names = [column.name for column in NUMBERS]
    taken = measurements.join(imports, measurements.c.import_id == imports.c.id)

    def of_workload(*columns: ColumnElement[Any]) -> Select[Any]:
        return select(*columns).select_from(taken).where(imports.c.workload_id == workload_id)

    counts = connection.execute(of_workload(*(func.count(measurements.c[name]) for name in names))).one()
    present = [name for name, count in zip(names, counts, strict=True) if count]  # reading nulls takes as long as numbers
    query = of_workload(*(measurements.c[name] for name in ("kernel_id", *present)))
    query = query.order_by(measurements.c.import_id, measurements.c.position)
    parts = [np.array(rows, dtype=np.float64) for rows in _batches(connection, query)]
    kernel_ids, *numbers = np.concatenate(parts).T.copy() if parts else np.empty((1 + len(present), 0))
    columns = dict(zip(present, numbers, strict=True))
    columns |= {name: np.full(len(kernel_ids), np.nan) for name in names if name not in columns}
    return kernel_ids.astype(np.int64), columns


def _batches(connection: Connection, query: Select[Any]) -> Iterator[Sequence[Any]]:
    """Rows as tuples, some at a time; SQLite's without SQLAlchemy's rows around them, which take as long again."""
    if connection.dialect.name != "sqlite":
        fetched = connection.execution_options(stream_results=True).execute(query)
        yield from (list(map(tuple, rows)) for rows in fetched.partitions(_CHUNK_ROWS))
        return
    cursor = connection.execute(query).cursor
    assert cursor is not None
    try:
        yield from iter(lambda: cursor.fetchmany(_CHUNK_ROWS), [])
    except connection.dialect.loaded_dbapi.Error as error:
        raise DBAPIError(str(query), None, error) from error


def _present(sweep: Sweep) -> list[str]:
    """The columns of the table that hold a value in some row of a sweep; the others stay null by themselves."""
    numbers = [column.name for column in NUMBERS if not np.isnan(getattr(sweep, column.name)).all()]
    return ["import_id", "position", "kernel_id", *numbers]


def _chunks(sweep: Sweep, import_id: int, kernel_ids: NDArray[np.int64]) -> Iterator[list[Sequence[Any]]]:
    """The columns of :func:`_present`, some rows at a time."""
    arrays = [getattr(sweep, name) for name in _present(sweep)[3:]]
    for start in range(0, len(sweep), _CHUNK_ROWS):
        stop = min(start + _CHUNK_ROWS, len(sweep))
        ids = kernel_ids[sweep.kernel_index[start:stop]].tolist()
        yield [[import_id] * len(ids), range(start, stop), ids, *(_nullable(array[start:stop]) for array in arrays)]


def _nullable(values: FloatArray) -> list[float | None]:
    numbers: list[float | None] = values.tolist()
    for row in np.flatnonzero(np.isnan(values)).tolist():
        numbers[row] = None
    return numbers


def _copy(connection: Connection, names: list[str], chunks: Iterator[list[Sequence[Any]]]) -> None:
    quote = connection.dialect.identifier_preparer.quote
    statement = f"COPY {quote(measurements.name)} ({', '.join(map(quote, names))}) FROM STDIN"
    # SQLAlchemy has no COPY, so the driver's own errors are made SQLAlchemy's here.
    driver: Any = connection.connection.driver_connection
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for columns in chunks:
                texts = [["\\N" if value is None else repr(value) for value in column] for column in columns]
                copy.write(("\n".join(map("\t".join, zip(*texts, strict=True))) + "\n").encode("ascii"))
    except connection.dialect.loaded_dbapi.Error as error:
        raise DBAPIError(statement, None, error) from error
