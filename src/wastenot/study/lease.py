"""Who is measuring a workload: one sweep at a time, kept in the study itself so that it holds between hosts as well.

Whoever measures a workload holds its lease and is heard of with every measurement, and every half minute besides. The next
one is refused while the holder lives. A holder counts as gone once its process has ended, which is seen from the same
machine at once, or once it has not been heard of for some minutes; the next one then takes over, and should the first wake
up again, its next measurement is refused.

    free ──take──▶ held ──release──▶ free
                    │ ends, or falls silent
                    ▼
                  stale ──take──▶ held by another
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from wastenot.core.errors import StudyError
from wastenot.core.processes import is_running, process_space, start_of
from wastenot.study import schema

BEAT_S = 30.0
_FIRST_BEAT_S = 1.0
SILENT_S = 180.0  # without a sign of life after which a holder counts as gone


class Kept(Protocol):
    """What must give signs of life."""

    @property
    def token(self) -> str:
        """Tells it from every other."""

    def renew(self, connection: Connection) -> bool:
        """Give a sign of life; returns whether it is still held."""

    def release(self, connection: Connection) -> None:
        """Let go."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who is measuring a workload.

    Attributes:
        what: it runs: a command, or what measures.
        started_at: in UTC.
        heard_at: when it last gave a sign of life.
    """

    host: str
    user: str
    process: int
    what: str
    started_at: datetime
    heard_at: datetime

    def __str__(self) -> str:
        user = f" of {self.user}" if self.user else ""
        return f"process {self.process}{user} on {self.host} since {self.started_at:%Y-%m-%d %H:%M:%S} UTC ({self.what})"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that this process holds.

    Attributes:
        workload_id: of the workload in the store.
        token: tells this lease from every other.
    """

    workload_id: int
    token: str

    def renew(self, connection: Connection) -> bool:
        """Give a sign of life; returns whether the lease is still held."""
        mine = (schema.leases.c.workload_id == self.workload_id) & (schema.leases.c.token == self.token)
        renewed = connection.execute(update(schema.leases).where(mine).values(heard_at=moment(connection)))
        return renewed.rowcount == 1

    def release(self, connection: Connection) -> None:
        """Let others measure."""
        mine = (schema.leases.c.workload_id == self.workload_id) & (schema.leases.c.token == self.token)
        connection.execute(delete(schema.leases).where(mine))


def take(connection: Connection, workload_id: int, label: str, what: str) -> Lease:
    """Take the lease of a workload.

    Args:
        connection: in a writing transaction.
        workload_id: of the workload in the store.
        label: how messages name the workload.
        what: is measuring.

    Raises:
        StudyError: another process holds it; says which, and how to continue.
    """
    table = schema.leases
    now = moment(connection)
    row = connection.execute(select(table).where(table.c.workload_id == workload_id)).one_or_none()
    if row is not None:
        if not is_gone(row, now):
            holder = _holder(row)
            silent = datetime.fromisoformat(now) - holder.heard_at
            until = holder.heard_at + timedelta(seconds=SILENT_S)
            lost = f". If that machine is lost, this can continue from {until:%H:%M:%S} UTC"
            raise StudyError(
                f"{label}: is being measured by {holder}, last heard from {silent.total_seconds():.0f} s ago; wait for it "
                "or end it, then run this again to resume. Other workloads may be measured meanwhile"
                + (lost if row.process_space != process_space() else "")
            )
        connection.execute(delete(table).where(table.c.workload_id == workload_id))
    token = uuid.uuid4().hex
    values = this_process() | {"user": _user(), "what": what}
    connection.execute(insert(table).values(workload_id=workload_id, token=token, **values, started_at=now, heard_at=now))
    return Lease(workload_id, token)


def this_process() -> dict[str, str | int]:
    """What a row holds of this process, so that others can tell whether it still runs."""
    process = os.getpid()
    started, space = start_of(process), process_space()
    return {"host": socket.gethostname(), "process": process, "process_started": started, "process_space": space}


def holder_of(connection: Connection, workload_id: int) -> Holder | None:
    """Who is measuring a workload, if somebody is."""
    table = schema.leases
    row = connection.execute(select(table).where(table.c.workload_id == workload_id)).one_or_none()
    return None if row is None or is_gone(row, moment(connection)) else _holder(row)


@contextmanager
def kept_alive(lease: Kept, writing: Callable[[], AbstractContextManager[Connection]]) -> Iterator[None]:
    """Gives signs of life while long measurements run, and releases the lease in the end.

    Args:
        lease: to keep.
        writing: begins a writing transaction on a connection of its own.
    """
    ended = threading.Event()

    def beat() -> None:
        # The first ones come soon: what a process is killed after is then known within a factor of two.
        wait_s = _FIRST_BEAT_S
        while not ended.wait(wait_s):
            wait_s = min(2.0 * wait_s, BEAT_S)
            with suppress(StudyError), writing() as connection:  # a study that is busy now hears the next one
                lease.renew(connection)

    thread = threading.Thread(target=beat, name=_thread_name(lease.token), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(StudyError), writing() as connection:  # else it runs out by itself
            lease.release(connection)


def is_gone(row: Row[tuple[object, ...]], now: str) -> bool:
    """Whether whoever holds something has ended, or has fallen silent.

    Args:
        row: with the process that holds it (:func:`this_process`), a token and when it was last heard of.
        now: by the clock of :func:`moment`.
    """
    heard_at = datetime.fromisoformat(row.heard_at)
    if datetime.fromisoformat(now) - heard_at > timedelta(seconds=SILENT_S):
        return True
    if row.process_space != process_space():
        return False
    if row.process == os.getpid():  # one that could not be released when the study was locked has no thread any more
        return all(thread.name != _thread_name(row.token) for thread in threading.enumerate())
    return not is_running(row.process, row.process_started)


def _thread_name(token: str) -> str:
    return f"wastenot lease {token}"


def _holder(row: Row[tuple[object, ...]]) -> Holder:
    times = (datetime.fromisoformat(text) for text in (row.started_at, row.heard_at))
    return Holder(row.host, row.user, row.process, row.what, *times)


def moment(connection: Connection) -> str:
    """Now, by the clock of the server where there is one, since those of two hosts may differ."""
    now = datetime.now(UTC)
    if connection.dialect.name != "sqlite":
        told = connection.execute(select(func.current_timestamp())).scalar_one()
        now = told.astimezone(UTC) if told.tzinfo else told.replace(tzinfo=UTC)
    return now.isoformat(timespec="seconds")


def _user() -> str:
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return ""
