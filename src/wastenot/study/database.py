"""Transactions on the database of a study: whole or not at all, and never a new file where one only reads."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, text

from wastenot.errors import StudyError
from wastenot.study.address import Address
from wastenot.study.faults import LOCKED, speaking_of

_WRITING = "wastenot_writing"
# Any number will do, as long as every wastenot takes the same: writers of one database wait for each other.
_ADVISORY_LOCK = 0x77A57E07


@dataclass(frozen=True, slots=True)
class Database:
    """The database of one study.

    Attributes:
        address: where it lies.
        engine: makes a new connection for every transaction.
        timeout_s: how long to wait for another writer.
        create: whether a missing file may be made by a writer.
    """

    address: Address
    engine: Engine
    timeout_s: float
    create: bool

    def check_there(self) -> None:
        """Refuse a file that is missing.

        Raises:
            StudyError: says how to make one.
        """
        path = self.address.path
        if path is None:
            return
        if path.is_dir():
            raise StudyError(f"{path}: is a folder, not a study; name a file")
        if not path.exists():
            raise StudyError(f"{path}: there is no study; make one: wastenot import SWEEP.csv --study {path}")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the study and changes nothing.

        Raises:
            StudyError: the database cannot be opened or read.
        """
        self.check_there()
        snapshot = {"isolation_level": "REPEATABLE READ"} if self.engine.dialect.name == "postgresql" else {}
        engine = self.engine.execution_options(**snapshot)
        with speaking_of(self.address), engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that no other writer overlaps: everything in it, tables too, is kept whole or not at all.

        Raises:
            StudyError: the database cannot be opened or written, or another writer holds it for too long.
        """
        made = self._make_file()
        try:
            with self._locked() as connection:
                yield connection
        except BaseException:
            if made:
                self._remove_if_empty()
            raise

    @contextmanager
    def keeping(self) -> Iterator[Callable[[], AbstractContextManager[Connection]]]:
        """A connection that stays open for many small writing transactions, begun by calling what is yielded.

        Raises:
            StudyError: the database cannot be opened or written, or another writer holds it for too long.
        """
        engine = self.engine.execution_options(**{_WRITING: True})
        with speaking_of(self.address), engine.connect() as connection:

            @contextmanager
            def transaction() -> Iterator[Connection]:
                with speaking_of(self.address), connection.begin():
                    self._wait_for_others(connection)
                    yield connection

            yield transaction

    def _wait_for_others(self, connection: Connection) -> None:
        """On a server, let one writer in at a time; SQLite does so by itself."""
        if connection.dialect.name == "postgresql":
            wait_ms = max(1, round(self.timeout_s * 1000))
            connection.execute(text(f"SET LOCAL lock_timeout = {wait_ms}"))
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))

    @contextmanager
    def _locked(self) -> Iterator[Connection]:
        path = self.address.path
        inode = _inode(path)
        engine = self.engine.execution_options(**{_WRITING: True})
        with speaking_of(self.address), engine.begin() as connection:
            self._wait_for_others(connection)
            if _inode(path) != inode:
                raise StudyError(f"{self.address.label}: {LOCKED}")
            yield connection

    def _remove_if_empty(self) -> None:
        # Under the lock, so that another writer has either filled the file or will see that it is gone.
        with suppress(StudyError), self._locked():
            path = self.address.path
            if path is not None and path.stat().st_size == 0:
                path.unlink()

    def _make_file(self) -> bool:
        path = self.address.path
        if path is None:
            return False
        if not self.create or path.exists():
            self.check_there()
            return False
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
        except FileExistsError:
            return False
        except FileNotFoundError as error:
            raise StudyError(f"{path}: there is no folder {path.parent}; make it first") from error
        except OSError as error:
            raise StudyError(f"{path}: cannot be made: {error.strerror}") from error
        return True


def connect(address: Address, *, timeout_s: float, create: bool) -> Database:
    """Prepare the database at an address; nothing is opened yet.

    Args:
        address: where it lies.
        timeout_s: how long to wait for another writer.
        create: whether a missing file may be made by a writer.

    Raises:
        StudyError: the kind of database is unknown, or its driver is not installed.
    """
    with speaking_of(address):
        if address.url is not None:
            # libpq takes whole seconds, and less than 2 as 2.
            patience = {"connect_timeout": max(2, round(timeout_s))}
            known = address.url.get_backend_name() == "postgresql" and "connect_timeout" not in address.url.query
            engine = create_engine(address.url, poolclass=NullPool, connect_args=patience if known else {})
        else:
            engine = create_engine("sqlite://", creator=_opener(address, timeout_s), poolclass=NullPool)
            event.listen(engine, "begin", _begin)
    return Database(address, engine, timeout_s, create)


def _opener(address: Address, timeout_s: float) -> Callable[[], sqlite3.Connection]:
    def open_file() -> sqlite3.Connection:
        # isolation_level None: Python's own transactions would leave the making of tables outside of ours.
        return sqlite3.connect(address.file_uri or "", uri=True, timeout=timeout_s, isolation_level=None)

    return open_file


def _begin(connection: Connection) -> None:
    writing = connection.get_execution_options().get(_WRITING, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _inode(path: Path | None) -> int | None:
    try:
        return None if path is None else path.stat().st_ino
    except OSError:
        return None
