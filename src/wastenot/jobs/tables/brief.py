"""What a study keeps of jobs, in brief."""

from __future__ import annotations

from sqlalchemy import Connection, select

from wastenot.jobs.tables.schema import jobs


def in_brief(connection: Connection) -> dict[str, tuple[object, ...]]:
    """Names of the jobs, in the order in which they came."""
    return {"jobs": tuple(connection.scalars(select(jobs.c.name).order_by(jobs.c.id)))}
