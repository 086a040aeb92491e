"""Locks that the kernel gives back when the process that holds them dies, however it dies and wherever that is seen from.

They are POSIX record locks, which belong to a process. Locks made with flock or of an open file description would be shared
with every forked child, and a worker that outlives its parent would keep them. These end with the process, also where its ID
means nothing to others (in another container), and when it executes another program.

Their trap: a process that closes *any* descriptor of the file gives up the lock. So a process opens a lock file here only,
and never while it holds the lock. Lock files stay in their folder, empty: removing one would let two processes lock two
files of one name. Nobody else may open them, since whoever can read a file can lock it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from pathlib import Path

from wastenot.devices.common.state_files import opened

_FLOCK = struct.Struct("hhqqi0q")  # struct flock on 64-bit Linux: type, whence, start, length, process

# A lock of the kernel is the process's, and so is this: descriptors by process and file, since a forked child holds nothing.
_HELD: dict[tuple[int, Path], int] = {}
_TURNS: dict[int, threading.Lock] = {}


def take(path: Path) -> bool:
    """Take a lock, which lasts until :func:`give_back` or the end of the process; false where somebody has it already.

    Args:
        path: the lock file, made if it does not exist.

    Raises:
        OSError: the file cannot be made, or its file system has no locks.
    """
    key = (os.getpid(), path)
    with _turn():
        if key in _HELD:
            return False
        with opened(path.parent) as folder:
            descriptor = os.open(path.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # the two ways to say that it is taken
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        _HELD[key] = descriptor
    return True


def give_back(path: Path) -> None:
    """Give a lock back; nothing happens where this process does not have it."""
    with _turn():
        descriptor = _HELD.pop((os.getpid(), path), None)
        if descriptor is not None:
            os.close(descriptor)


def is_taken(path: Path) -> bool | None:
    """Whether a living process, this one included, has a lock; ``None`` where this user cannot find out."""
    with _turn():
        if (os.getpid(), path) in _HELD:
            return True
        try:
            with opened(path.parent) as folder:
                descriptor = os.open(path.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
        except FileNotFoundError:
            return False
        except OSError:
            return None
        try:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            found = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)[: _FLOCK.size])
        except OSError:
            return None
        finally:
            os.close(descriptor)
    return bool(found[0] != fcntl.F_UNLCK)


def _turn() -> threading.Lock:
    """One lock for the threads of a process; a child forked while a thread holds it gets another."""
    return _TURNS.setdefault(os.getpid(), threading.Lock())
