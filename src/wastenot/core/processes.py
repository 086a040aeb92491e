"""Processes: which one holds something, so that another can tell whether it still runs; and those that share work."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")


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


def number_in_environment(variable: str, otherwise: int, environment: Mapping[str, str] = os.environ) -> int:
    """The whole number that a variable of the environment holds, such as ``LOCAL_RANK``; where it holds none, the other."""
    text = environment.get(variable, "")
    return int(text) if text.isdecimal() else otherwise


def name_of(process: int) -> str | None:
    """Name of a process's program; ``None`` where it is not visible from here."""
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return None


def holders_of(file: Path) -> frozenset[int]:
    """Processes that have a file open, as far as this user may see."""
    found = set()
    for process in (int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()):
        with suppress(OSError):
            if any(os.readlink(each) == str(file) for each in Path(f"/proc/{process}/fd").iterdir()):
                found.add(process)
    return frozenset(found)


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


def shared_out(
    processes: int, do: Callable[..., Result], tasks: Iterable[tuple[Key, tuple[object, ...]]]
) -> Iterator[tuple[Key, Result]]:
    """Tasks shared over processes of this machine, as they end.

    A Ctrl-C reaches all processes of a terminal: the others end without a word, also while they still start, and the
    caller's raises :class:`KeyboardInterrupt` as ever.

    Args:
        processes: at most.
        do: a function of a module, which each process imports.
        tasks: what each is called by, and the arguments of ``do``.
    """
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context, resource_tracker

    resource_tracker.ensure_running()  # the first time, it would end the blocking below
    # Spawned, as what this process holds (threads, connections) is not to be copied.
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_end_silently) as pool:
        try:
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which the processes inherit
            try:
                waiting = {pool.submit(do, *arguments): key for key, arguments in tasks}
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _end_silently() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class Terminated(SystemExit):
    """A signal asked the process to terminate."""


def terminate(number: int, frame: object) -> None:
    """Handle a signal by an exception, so that contexts exit in order."""
    raise Terminated(128 + number)
