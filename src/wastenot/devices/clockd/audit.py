"""The audit log: who asked for what when, and what became of it, one JSON object a line.

    {"time": "2026-03-01T09:30:00.123+00:00", "event": "set", "user": 1000, "name": "anna", "process": 4711,
     "gpu": "GPU-...", "core_mhz": 1410.0, "result": "granted"}

It is a file of root's, or journald. The daemon rotates the file itself by size, so that its bound holds wherever it runs,
also in a container, where no logrotate does. The file is opened for each record, so that logrotate may move it away too,
without telling. Records that cannot be written are counted, and the daemon goes ahead without them.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from wastenot.core.errors import BadInputError
from wastenot.devices.clockd.log_lines import Lines, Log, Repeats, Shares
from wastenot.devices.common.state_files import is_own, opened

JOURNALD = "journald"
"""Instead of a file: `journalctl -t wastenot-audit` shows it."""
_JOURNAL = "/run/systemd/journal/socket"
_LARGEST = 16 << 20  # bytes of a file
_KEPT = 7  # files that are full, beside the one that is written
_A_MINUTE = 600  # records of one user: 10 MB an hour, so that no user soon pushes out what was recorded of others

Record = dict[str, Any]


class Audit:
    """Takes events and their fields, from any thread.

    Args:
        where: a file, or :data:`JOURNALD`.
        now_s: the clock of users' shares.
        log: is told when records cannot be written.

    Raises:
        BadInputError: others than root could write the file, or it is none.
    """

    def __init__(self, where: str, now_s: Callable[[], float], log: Log) -> None:
        check_audit(where)
        self._where, self._log, self._repeats = where, log, Repeats(now_s)
        self._lines = Lines[Record](self._write, lambda count: _record("audit", dropped=count))
        self._shares = Shares(lambda event, **fields: self._lines.put(_record(event, **fields)), now_s, _A_MINUTE)

    def __call__(self, event: str, **fields: object) -> None:
        """Record an event, unless the user of its fields has used up the minute's records."""
        self._shares(event, **fields)

    def dropped(self) -> int:
        """How many records were lost."""
        return self._lines.dropped + self._shares.dropped

    def close(self, longest_s: float) -> None:
        """Write what waits, as far as that is possible in this time."""
        self._lines.close(longest_s)

    def _write(self, record: Record) -> None:
        """In the thread of the lines, where looking up a user may take its time."""
        if "user" in record:
            record = {**record, "name": _name_of(int(record["user"]))}
        try:
            (_send if self._where == JOURNALD else _append)(self._where, json.dumps(record).encode())
        except OSError as error:
            why = f"{self._where}: records are lost: {error.strerror}"
            if self._repeats.is_news("", why):
                self._log("audit", error=why)
            raise


def check_audit(where: str) -> None:
    """Check that records may be written somewhere, as :class:`Audit` does; a file is made where there is none."""
    if where == JOURNALD:
        return
    try:
        os.close(_open(Path(where)))
    except OSError as error:
        raise BadInputError(f"{where}: cannot be written: {error.strerror}") from error


def _record(event: str, **fields: object) -> Record:
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    plain = {name: value if isinstance(value, int | float) else str(value) for name, value in fields.items()}
    return {"time": time, "event": event, **plain}


@lru_cache(1024)
def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except (KeyError, OverflowError):
        return str(user)


def _open(path: Path) -> int:
    """A descriptor of a file that nobody else can have written, nor have put a link in its place."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_CREAT
    with opened(path.parent) as folder:
        if not is_own(os.fstat(folder)):
            raise OSError(0, f"users other than root can write to {path.parent}")
        descriptor = os.open(path.name, flags, 0o600, dir_fd=folder)
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or not is_own(about):
        os.close(descriptor)
        raise OSError(0, "not a regular file, or users other than root can write to it")
    os.fchmod(descriptor, 0o600)
    return descriptor


def _append(where: str, line: bytes) -> None:
    path, data = Path(where), line + b"\n"
    with suppress(FileNotFoundError):
        if path.lstat().st_size + len(data) > _LARGEST:
            for number in range(_KEPT, 1, -1):
                with suppress(FileNotFoundError):
                    os.rename(f"{path}.{number - 1}", f"{path}.{number}")
            path.rename(f"{path}.1")
    descriptor = _open(path)
    try:
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, data) < len(data):
            os.ftruncate(descriptor, size)  # no half a line, to which the next would be added
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _send(where: str, line: bytes) -> None:
    """One datagram in journald's own protocol; it is refused where journald reads too slowly."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(b"SYSLOG_IDENTIFIER=wastenot-audit\nPRIORITY=6\nMESSAGE=" + line + b"\n", _JOURNAL)
