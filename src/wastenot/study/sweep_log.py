"""The record of sweeps in a study: what each set out to measure, and whether it came to its end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, get_args

from sqlalchemy import Connection, select, update

from wastenot.core.setting import Setting
from wastenot.study import schema
from wastenot.study.catalog import inserted_id, utc_now
from wastenot.study.coverage import Intent, Point, RecordedSweep, SweepKind


def begin_sweep(connection: Connection, workload_id: int, intent: Intent) -> int:
    """Record that a sweep begins, or that it is resumed where one with the same intent is there; returns its id.

    Args:
        connection: in a writing transaction.
        workload_id: of the workload in the store.
        intent: what it sets out to do.
    """
    table = schema.sweeps
    values = _values(intent)
    resumable = ("kind", "settings", "share", "max_slowdown")
    same = (table.c[name].is_(None) if values[name] is None else table.c[name] == values[name] for name in resumable)
    found = connection.scalar(select(table.c.id).where(table.c.workload_id == workload_id, *same))
    if found is None:
        return inserted_id(connection, table, workload_id=workload_id, started_at=utc_now(), **values)
    news = {name: values[name] for name in ("excluded", "command")}
    connection.execute(update(table).where(table.c.id == found).values(**news, finished_at=None))
    return int(found)


def add_excluded(connection: Connection, sweep_id: int, points: Iterable[Point]) -> None:
    """Record points that turned out not to be possible."""
    table = schema.sweeps
    row = connection.execute(select(table.c.settings, table.c.excluded).where(table.c.id == sweep_id)).one()
    settings = _settings(row.settings)
    known = _points(row.excluded, settings)
    text = _excluded_text(known | set(points), settings)
    connection.execute(update(table).where(table.c.id == sweep_id).values(excluded=text))


def finish_sweep(connection: Connection, sweep_id: int) -> None:
    """Record that a sweep came to its end."""
    table = schema.sweeps
    connection.execute(update(table).where(table.c.id == sweep_id).values(finished_at=utc_now()))


def recorded_sweeps(connection: Connection, workload_id: int) -> tuple[RecordedSweep, ...]:
    """The sweeps of a workload, in order of their beginnings.

    Raises:
        ValueError: what is stored cannot be.
    """
    table = schema.sweeps
    found = []
    for row in connection.execute(select(table).where(table.c.workload_id == workload_id).order_by(table.c.id)):
        if row.kind not in get_args(SweepKind):
            raise ValueError(f"a sweep of kind {row.kind!r}")
        if row.share is not None and row.max_slowdown is None:
            raise ValueError("a search without its slowdown limit")
        settings = _settings(row.settings)
        intent = Intent(row.kind, settings, _points(row.excluded, settings), row.share, row.max_slowdown, row.command)
        ended = None if row.finished_at is None else datetime.fromisoformat(row.finished_at)
        found.append(RecordedSweep(intent, datetime.fromisoformat(row.started_at), ended))
    return tuple(found)


def _values(intent: Intent) -> dict[str, Any]:
    return {
        "kind": intent.kind,
        "settings": json.dumps([_stored(each) for each in intent.settings]),
        "excluded": _excluded_text(intent.excluded, intent.settings),
        "share": intent.share,
        "max_slowdown": intent.max_slowdown,
        "command": intent.command,
    }


def _excluded_text(points: Iterable[Point], settings: tuple[Setting, ...]) -> str:
    position = {setting: index for index, setting in enumerate(settings)}
    return json.dumps(sorted([kernel, position[setting]] for kernel, setting in points if setting in position))


def _stored(setting: Setting) -> list[float | str | None]:
    clocks: list[float | str | None] = [setting.core_mhz, setting.memory_mhz, setting.power_limit_w]
    return clocks if setting.profile is None else [*clocks, setting.profile]


def _settings(text: str) -> tuple[Setting, ...]:
    return tuple(Setting(*values) for values in json.loads(text))


def _points(text: str, settings: tuple[Setting, ...]) -> frozenset[Point]:
    return frozenset((kernel, settings[position]) for kernel, position in json.loads(text))
