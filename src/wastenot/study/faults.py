"""What a database complains of, as one line for a person: what happened to which study, and what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from wastenot.errors import StudyError
from wastenot.study.address import Address

LOCKED = "another program is writing to it; try again when that is done"
DAMAGED = "is damaged; restore a copy, or import its files into a new study"
_FULL = "the disk is full; make room and try again. The study is as it was"
_READ_ONLY = "it may only be read; copy it to a place that you may write to"

_SQLITE = {
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_NOTADB: "is not a study (not an SQLite file); check the name",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that you may read the file and write to its folder",
    sqlite3.SQLITE_IOERR: "the disk does not take or give the data: full, over a limit, or failing",
    sqlite3.SQLITE_PERM: "you may not open it; ask for the permission",
}

_POSTGRESQL = {
    "55P03": LOCKED,
    "53100": _FULL,
    "25006": _READ_ONLY,
    "42501": "this user may not do that; ask for the rights to read, write and create tables",
    "42P01": DAMAGED,
    "42703": DAMAGED,
}


@contextmanager
def speaking_of(address: Address) -> Iterator[None]:
    """Turn what the database raises inside into a ``StudyError`` about the study at ``address``."""
    try:
        yield
    except NoSuchModuleError as error:
        raise StudyError(f"{address.label}: no such kind of database is known; check the start of the URL") from error
    except ImportError as error:
        extra = "wastenot[postgresql]" if address.url and "postgresql" in address.url.drivername else error.name
        raise StudyError(f"{address.label}: its driver is not installed: pip install '{extra}'") from error
    except DBAPIError as error:
        raise StudyError(f"{address.label}: {_say(error.orig or error, address)}") from error
    except SQLAlchemyError as error:
        raise StudyError(f"{address.label}: {_first_line(error, address)}") from error


def _say(error: BaseException, address: Address) -> str:
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
    text = " ".join(str(error).strip().partition("\n")[0].split())
    for secret in address.secrets:
        text = text.replace(secret, "***")
    return text
