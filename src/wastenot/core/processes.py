"""Which process holds something, written down so that another one can tell whether it still runs."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path


def start_of(process: int) -> str:
    """Start time of a process in ticks since boot; empty if there is none. A zombie counts as dead."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def started_unix_s() -> float:
    """When this process was started, by the calendar; 0 where the system does not tell."""
    try:
        text = Path("/proc/stat").read_text()
        boot_s = float(next(line.split()[1] for line in text.splitlines() if line.startswith("btime")))
        return boot_s + int(start_of(os.getpid())) / os.sysconf("SC_CLK_TCK")
    except (OSError, StopIteration, ValueError):
        return 0.0


def boot_id() -> str:
    """Identifies the time since this machine was started; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_space() -> str:
    """Where a process ID means the same process: one boot of one machine, in one container; else the name of the host."""
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{boot_id()} {namespace}".strip() or socket.gethostname()


def is_running(process: int, started: str) -> bool:
    """Whether a process of this space still runs.

    Args:
        process: its ID.
        started: what :func:`start_of` said of it when it ran; empty where the system does not tell.
    """
    if started:
        return start_of(process) == started
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Terminated(SystemExit):
    """A signal asked the process to terminate."""
