"""Studies of earlier versions, brought to the tables of this one.

    4 ──▶ 5 ──▶ … ──▶ 10       each step changes tables that the study has
                      └──▶     and tables that it lacks are made last, whole

Steps use Alembic's operations, which know what each database can alter. Its version table and folder of scripts are left
out: a study says itself which version it is of, and its steps belong to the program, not to a deployment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, inspect, select, true, update

from wastenot.core.errors import StudyError
from wastenot.study import schema
from wastenot.study.lease import is_gone, moment

if TYPE_CHECKING:
    from alembic.operations import Operations

OLDEST_MIGRATED = 2


def is_old(connection: Connection) -> bool:
    """Whether the database holds a study of an earlier version that this one can migrate."""
    if not inspect(connection).has_table(schema.study.name):
        return False
    found = connection.scalar(select(schema.study.c.schema_version))
    return isinstance(found, int) and OLDEST_MIGRATED <= found < schema.SCHEMA_VERSION


def migrate(connection: Connection) -> None:
    """Bring a study for which :func:`is_old` holds to this version.

    Args:
        connection: in a writing transaction, which keeps all of it or nothing.
    """
    from alembic.migration import MigrationContext  # half a second, and hardly ever needed
    from alembic.operations import Operations

    found = connection.execute(select(schema.study.c.schema_version)).scalar_one()
    operations = Operations(MigrationContext.configure(connection))
    for version in range(found + 1, schema.SCHEMA_VERSION + 1):
        if version in _STEPS:
            _STEPS[version](operations)
    schema.all_tables().create_all(connection)
    connection.execute(update(schema.study).values(schema_version=schema.SCHEMA_VERSION))


def check_unused(connection: Connection) -> None:
    """Refuse a study that another process measures into: it is of an earlier version, and does not know later tables.

    Raises:
        StudyError: says which process.
    """
    now = moment(connection)
    for table in schema.all_tables().tables.values():
        if "heard_at" not in table.c or not inspect(connection).has_table(table.name):
            continue
        open_ones = table.c.outcome == "running" if "outcome" in table.c else true()
        # Column by column: an earlier table has not all that are there today.
        names = ("token", "host", "process", "process_started", "process_space", "heard_at")
        for row in connection.execute(select(*(table.c[name] for name in names)).where(open_ones)):
            if not is_gone(row, now):
                raise StudyError(
                    f"process {row.process} on {row.host} still measures into it with that version; wait for it or end it"
                )


def _add(operations: Operations, column: Column[Any]) -> None:
    """Add a column, which must be nullable, to a table that the study may have."""
    if inspect(operations.get_bind()).has_table(column.table.name):
        operations.add_column(column.table.name, Column(column.name, column.type))


def _captured_on(operations: Operations) -> None:
    """What a workload was captured on stood in a table of its own, which not all studies of version 3 had."""
    _add(operations, schema.workloads.c.captured_on)
    if inspect(operations.get_bind()).has_table("wastenot_captured_on"):
        operations.execute(
            "UPDATE wastenot_workloads SET captured_on = (SELECT device FROM wastenot_captured_on "
            "WHERE workload_id = wastenot_workloads.id)"
        )
        operations.drop_table("wastenot_captured_on")


def _profile_and_budget(operations: Operations) -> None:
    """Settings had no workload power profile, and what learning may cost was not kept with a job."""
    _add(operations, schema.measurements.c.profile)
    _add(operations, schema.all_tables().tables["wastenot_job_terms"].c.learning_budget)


_STEPS: dict[int, Callable[[Operations], None]] = {9: _captured_on, 10: _profile_and_budget}
"""What brings a study to each version from the one before; nothing where a version only added tables."""
