"""The database of a study: transactions on it, and its errors in words that a person can act on.

A study is a file of SQLite or a database on a server. A transaction happens whole or not at all, and reading never makes a
study. The first transaction on a study of an earlier version migrates it; where that cannot be, an SQLite file can still be
read, by a copy that is gone afterwards.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, text
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from wastenot.core.errors import StudyError, StudyUnreachableError
from wastenot.core.install import install_line, installer
from wastenot.study.address import HIDDEN, Address
from wastenot.study.columns import DamagedValueError
from wastenot.study.migration import check_unused, is_old, migrate
from wastenot.study.schema import SCHEMA_VERSION
from wastenot.study.sqlite_copy import keep_copy, passing_copy

_WRITING = "wastenot_writing"
# Any number will do, as long as every wastenot takes the same: writers of one database wait for each other.
_ADVISORY_LOCK = 0x77A57E07

LOCKED = "another program is writing to it; try again when it has finished"
DAMAGED = "is damaged; restore a copy, or import its files into a new study"
_FULL = "the disk is full; make room and try again. The study is as it was"
_READ_ONLY = "it is read-only; copy it to a place where you can write"

_SQLITE = {
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_NOTADB: "is not a study (not an SQLite file); check the name",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that you may read the file and write to its folder",
    sqlite3.SQLITE_IOERR: "the disk cannot read or write the data: it is full, over a limit, or failing",
    sqlite3.SQLITE_PERM: "you may not open it; ask for the permission",
}

_POSTGRESQL = {
    "55P03": LOCKED,
    "53100": _FULL,
    "25006": _READ_ONLY,
    "42501": "this user is not allowed to do that; ask for permission to read, write and create tables",
    "42P01": DAMAGED,
    "42703": DAMAGED,
}


@contextmanager
def study_errors(address: Address) -> Iterator[None]:
    """Turn what the database raises inside into a ``StudyError`` about the study at ``address``."""
    try:
        yield
    except NoSuchModuleError as error:
        raise StudyError(f"{address.label}: no such kind of database is known; check the start of the URL") from error
    except ImportError as error:
        missing, line = "its driver", f"{installer()} {error.name}"
        if error.name == "alembic":
            missing = "the library that upgrades studies of earlier versions"
        elif address.url is not None and "postgresql" in address.url.drivername:
            line = install_line("postgresql")
        raise StudyError(f"{address.label}: {missing} is not installed: {line}") from error
    except (DamagedValueError, UnicodeDecodeError) as error:  # the latter where SQLite quotes what it cannot understand
        raise StudyError(f"{address.label}: {DAMAGED}") from error
    except (DBAPIError, sqlite3.Error) as error:
        cause = getattr(error, "orig", None) or error
        kind = StudyUnreachableError if _is_outage(cause) else StudyError
        raise kind(f"{address.label}: {_database_error(cause, address)}") from error
    except SQLAlchemyError as error:
        raise StudyError(f"{address.label}: {_first_line(error, address)}") from error


# "The database system is" starting up, shutting down, in recovery mode or not yet accepting connections.
_FOR_A_WHILE = ("the database system is", "terminating connection", "too many clients", "remaining connection slots")


def _is_outage(error: BaseException) -> bool:
    """Whether a server does not answer, is shutting down or starting."""
    state = getattr(error, "sqlstate", None)
    if state is not None:
        return state.startswith("08") or state in ("57P01", "57P02", "57P03")
    said = str(error).lower()
    if "fatal" in said:  # the server answers, and refuses
        return any(words in said for words in _FOR_A_WHILE)
    return type(error).__name__ == "OperationalError" and not isinstance(error, sqlite3.Error) and "certificate" not in said


def _database_error(error: BaseException, address: Address) -> str:
    if isinstance(error, sqlite3.Error):
        # The low byte is the kind; the rest says more than a person needs.
        known = _SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        if known is None and str(error).startswith(("no such column", "no such table")):
            known = DAMAGED
        return known or f"SQLite cannot do that: {_first_line(error, address)}"
    state = getattr(error, "sqlstate", None)
    if state in _POSTGRESQL:
        return _POSTGRESQL[state]
    if state is None and "connect" in str(error).lower():
        return f"the server does not answer: {_first_line(error, address)}; check host, port, user and password"
    return f"the server cannot do that: {_first_line(error, address)}"


def _first_line(error: BaseException, address: Address) -> str:
    line = " ".join(str(error).strip().partition("\n")[0].split())
    for secret in address.secrets:
        line = line.replace(secret, HIDDEN)
    return line


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
            raise StudyError(
                f"{path}: there is no study here; create one: wastenot kernel sweep WORKLOAD --device D --study {path}, "
                f"or from a file: wastenot study import SWEEP.csv --study {path}"
            )

    def check_makeable(self) -> None:
        """Refuse a file that could not be made, without making it.

        Raises:
            StudyError: it is a folder, or its folder is missing or may not be written.
        """
        path = self.address.path
        if path is None:
            return
        if path.exists():
            self.check_there()
        elif path.parent.exists() and not path.parent.is_dir():
            raise StudyError(f"{path}: cannot be made: {os.strerror(errno.ENOTDIR)}")
        elif not path.parent.exists():
            raise StudyError(f"{path}: there is no folder {path.parent}; create it first")
        elif not os.access(path.parent, os.W_OK):
            raise StudyError(f"{path}: cannot be made: {os.strerror(errno.EACCES)}")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the study and changes nothing.

        Raises:
            StudyError: the database cannot be opened or read.
        """
        self.check_there()
        snapshot = {"isolation_level": "REPEATABLE READ"} if self.engine.dialect.name == "postgresql" else {}
        engine: Engine = self.engine.execution_options(**snapshot)
        with study_errors(self.address), ExitStack() as stack:
            connection = stack.enter_context(engine.begin())
            if is_old(connection):
                stack.close()
                try:
                    self._migrate()
                except StudyError:
                    if self.address.path is None:
                        raise
                    engine = _sqlite_engine(lambda: passing_copy(self.address.file_uri or ""))
                connection = stack.enter_context(engine.begin())
                if is_old(connection):
                    migrate(connection)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that no other writer overlaps: everything in it, tables too, is kept whole or not at all.

        Raises:
            StudyError: the database cannot be opened or written, or another writer holds it for too long.
        """
        made = self._make_file()
        try:
            with ExitStack() as stack:
                connection = stack.enter_context(self._locked())
                if is_old(connection):
                    stack.close()
                    self._migrate()
                    connection = stack.enter_context(self._locked())
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
        with study_errors(self.address), engine.connect() as connection:

            @contextmanager
            def transaction() -> Iterator[Connection]:
                with study_errors(self.address), connection.begin():
                    self._wait_for_others(connection)
                    yield connection

            yield transaction

    def _migrate(self) -> None:
        """Bring a study of an earlier version to this one, in a transaction of its own, and say so on stderr."""
        address, copy, is_new = self.address, None, False
        try:
            with self._locked() as connection:
                if not is_old(connection):  # any more: another process has migrated it
                    return
                check_unused(connection)
                if address.path is not None:
                    copy, is_new = keep_copy(address.file_uri or "", address.path, f".before-v{SCHEMA_VERSION}")
                migrate(connection)
        except (StudyError, OSError) as error:
            if copy is not None and is_new:
                copy.unlink(missing_ok=True)
            why = str(error).removeprefix(f"{address.label}: ")
            if isinstance(error, OSError):
                why = f"no copy can be made next to it ({error.strerror}); copy it to a folder where you can write"
            cannot = f"was written by an earlier wastenot and cannot be migrated to schema {SCHEMA_VERSION}"
            raise StudyError(f"{address.label}: {cannot}: {why}") from error
        kept = "" if copy is None else f"; the original is in {copy}"
        print(f"wastenot: {address.label}: migrated to schema {SCHEMA_VERSION}{kept}", file=sys.stderr)

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
        with study_errors(self.address), engine.begin() as connection:
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
            raise StudyError(f"{path}: there is no folder {path.parent}; create it first") from error
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
    with study_errors(address):
        if address.url is not None:
            # libpq takes whole seconds, and less than 2 as 2.
            patience = {"connect_timeout": max(2, round(timeout_s))}
            known = address.url.get_backend_name() == "postgresql" and "connect_timeout" not in address.url.query
            engine = create_engine(address.url, poolclass=NullPool, connect_args=patience if known else {})
        else:
            # isolation_level None: Python's own transactions would leave the making of tables outside of ours.
            def open_file() -> sqlite3.Connection:
                return sqlite3.connect(address.file_uri or "", uri=True, timeout=timeout_s, isolation_level=None)

            engine = _sqlite_engine(open_file)
    return Database(address, engine, timeout_s, create)


def _sqlite_engine(open_file: Callable[[], sqlite3.Connection]) -> Engine:
    engine = create_engine("sqlite://", creator=open_file, poolclass=NullPool)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    writing = connection.get_execution_options().get(_WRITING, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _inode(path: Path | None) -> int | None:
    try:
        return None if path is None else path.stat().st_ino
    except OSError:
        return None
