"""A connection to wastenotd."""

from __future__ import annotations

import grp
import os
import random
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wastenot.core.errors import ClocksRefusedError, DeviceError
from wastenot.core.lines import LineError, LineReader
from wastenot.devices.common.daemon_protocol import (
    LONGEST_REPLY,
    MINOR,
    VERSION,
    checked,
    encode,
    is_understood,
    socket_path,
)  # fmt: skip

_BUSY_S = 15.0  # for a daemon that is busy
_PAUSES_S = (0.01, 0.5)  # between attempts to connect to it: the first, which doubles, and the longest
_GOODBYE_S = 10.0  # for the daemon to restore clocks and hang up


class NoDaemonError(DeviceError):
    """No wastenotd listens on this machine."""


class BusyError(DeviceError):
    """The daemon has too many connections at the moment."""


class QueuedError(DeviceError):
    """Another user has waited for the GPU for longer."""


class LeaseLostError(DeviceError):
    """The daemon has ended a lease and restored the clocks."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """What the daemon says to a client.

    Attributes:
        user: ID of the user that the daemon sees.
        heartbeat_s: of silence, after which leases end.
        gpus: by UUID, what the policy allows.
        leases: by UUID, who has a lease.
        missing: names of the GPUs that do not answer it.
    """

    user: int
    heartbeat_s: float
    gpus: dict[str, dict[str, Any]]
    leases: dict[str, dict[str, Any]]
    missing: tuple[str, ...] = ()


class Connection:
    """A connection, which threads may share; a forked child has none.

    Args:
        patience_s: to wait for a reply at most; a driver may take seconds.

    Raises:
        NoDaemonError: nobody listens.
        ClocksRefusedError: this user may not connect.
        BusyError: it stayed busy, however often it was tried.
        DeviceError: the daemon does not answer, or speaks another version.
    """

    def __init__(self, patience_s: float = 30.0) -> None:
        self._path, self._turn, self._patience_s = socket_path(), threading.Lock(), patience_s
        self._process = os.getpid()
        until_s, pause_s = time.monotonic() + min(_BUSY_S, patience_s), _PAUSES_S[0]
        while True:
            try:
                self._begin()
            except BusyError:
                if time.monotonic() + pause_s > until_s:
                    raise
                time.sleep(pause_s * random.uniform(0.5, 1.0))  # not all at once again
                pause_s = min(2.0 * pause_s, _PAUSES_S[1])
            else:
                return

    def _begin(self) -> None:
        self._socket, self._reader = _connect(self._path, self._patience_s), LineReader(LONGEST_REPLY)
        try:
            reply = self.ask("hello", minor=MINOR)
            minor = reply.get("minor", 0)
            if not is_understood(minor):
                raise DeviceError(
                    f"{self._path}: wastenotd speaks version {VERSION}.{minor} of its protocol, this wastenot version "
                    f"{VERSION}.{MINOR}: install the same wastenot on both sides"
                )
            self.welcome = _welcome(reply)
        except BaseException:
            self._socket.close()
            raise

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        """The daemon's answer to a request.

        Raises:
            LeaseLostError: the daemon has ended the lease.
            ClocksRefusedError: the policy or the GPU does not allow it.
            DeviceError: another process has the lease, the GPU failed, or the daemon has gone.
        """
        if os.getpid() != self._process:
            raise DeviceError("a forked process cannot use the lease of clocks of its parent")
        with self._turn:
            try:
                with suppress(BrokenPipeError, ConnectionResetError):  # it may have said why it hung up
                    self._socket.sendall(encode({"ask": what} | fields))
                reply = self._reply()
            except (OSError, EOFError, LineError) as error:
                self._socket.close()
                raise LeaseLostError(
                    f"{self._path}: wastenotd has stopped: {error}; it restores clocks when it starts again"
                ) from error
            except BaseException:
                self._say_goodbye()
                raise
        return self._understood(reply)

    def close(self) -> None:
        """Hang up; clocks are restored when this returns. A forked child only closes its copy."""
        if os.getpid() != self._process:
            with suppress(OSError):
                self._socket.close()
            return
        with self._turn:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        with suppress(OSError):
            self._socket.settimeout(_GOODBYE_S)
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(65536):
                pass
        self._socket.close()

    def _reply(self) -> dict[str, Any]:
        while True:
            more = self._socket.recv(65536)
            if not more:
                raise EOFError("it disconnected")
            for message in self._reader.taken(more):  # one at a time, as it was asked
                return checked(message)

    def _understood(self, reply: dict[str, Any]) -> dict[str, Any]:
        ok = reply.get("ok")
        if reply["wastenot"] != VERSION or reply.get("error") == "version":
            raise DeviceError(
                f"{self._path}: wastenotd speaks version {reply['wastenot']} of its protocol, this wastenot version "
                f"{VERSION}: install the same wastenot on both sides"
            )
        if isinstance(ok, dict):
            return ok
        kind, text = reply.get("error"), str(reply.get("text", "wastenotd refuses"))
        if kind == "busy":
            raise BusyError(text)
        if kind == "queued":
            raise QueuedError(text)
        if kind == "lost":
            raise LeaseLostError(text)
        if kind in ("policy", "refused"):
            raise ClocksRefusedError(text)
        raise DeviceError(text)


def _connect(path: Path, patience_s: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(patience_s)
        connection.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as error:
        connection.close()
        raise NoDaemonError(f"no wastenotd listens on {path}") from error
    except PermissionError as error:
        connection.close()
        raise ClocksRefusedError(_not_in_group(path)) from error
    except BlockingIOError as error:  # more wait to be accepted than the kernel lets wait
        connection.close()
        raise BusyError(f"{path}: wastenotd is busy: too many programs are waiting to connect") from error
    except OSError as error:
        connection.close()
        raise DeviceError(f"{path}: wastenotd does not answer: {error}") from error
    return connection


def _not_in_group(path: Path) -> str:
    try:
        number = path.stat().st_gid
    except OSError:
        return f"{path}: wastenotd is running, but this user may not connect to it"
    try:
        group = grp.getgrgid(number).gr_name
    except KeyError:
        group = str(number)
    return (
        f"{path}: wastenotd is for members of the group '{group}', which this process is not in: ask an administrator for "
        f"usermod -aG {group} YOU, then log in again"
    )


def _welcome(reply: dict[str, Any]) -> Welcome:
    try:
        return Welcome(
            int(reply["user"]), float(reply["heartbeat_s"]), dict(reply["gpus"]), dict(reply["leases"]),
            tuple(map(str, reply.get("missing", ()))),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise DeviceError(f"wastenotd sent an invalid reply: {error}") from error
