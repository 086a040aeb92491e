"""Copies of a study's file, made by SQLite itself.

To open and close the file in any other way would release the locks that SQLite holds on it for this process.
"""

from __future__ import annotations

import filecmp
import os
import sqlite3
from contextlib import closing, suppress
from itertools import count
from pathlib import Path


def keep_copy(uri: str, path: Path, suffix: str) -> tuple[Path, bool]:
    """Copy a file to one beside it, which replaces no other.

    Args:
        uri: of the file, which this process has locked against other writers.
        path: of the file.
        suffix: of the copy's name, to which a number is added where another file has that name.

    Returns:
        The copy, and whether it is new: one with the same content that was there before will do.

    Raises:
        OSError: the folder does not take it.
        sqlite3.Error: the same, or the file cannot be read.
    """
    part = path.with_name(f".{path.name}{suffix}.part")
    try:
        part.unlink(missing_ok=True)  # of a process that was killed
        with closing(sqlite3.connect(uri, uri=True)) as source, closing(sqlite3.connect(part)) as target:
            target.execute("PRAGMA journal_mode = OFF")  # else the journal of a killed process spoils the next copy
            source.backup(target)
        part.chmod(path.stat().st_mode & 0o777)
        for number in count(1):
            copy = path.with_name(path.name + suffix + ("" if number == 1 else f".{number}"))
            if copy.is_file() and filecmp.cmp(part, copy, shallow=False):
                return copy, False
            if not os.path.lexists(copy):
                with suppress(FileExistsError):
                    _name(part, copy)
                    return copy, True
        raise AssertionError
    finally:
        part.unlink(missing_ok=True)


def _name(part: Path, copy: Path) -> None:
    """Give a file another name at once, unless there is such a file."""
    try:
        os.link(part, copy)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        part.rename(copy)


def passing_copy(uri: str) -> sqlite3.Connection:
    """A connection to a copy of a file that nobody else sees, and that is gone once it is closed."""
    copy = sqlite3.connect("", isolation_level=None)  # one without a name lies in memory, and if it is large, on disk
    with closing(sqlite3.connect(uri, uri=True)) as source:
        source.backup(copy)
    return copy
