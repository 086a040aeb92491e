"""Files of a state folder, opened so that nobody else can have written them or can redirect them.

A folder is opened once, without following a link, and its files are opened relative to that descriptor, again without
following links: whoever swaps a name for a link between two steps gains nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LONGEST = 1 << 16  # bytes of a file that is read; a journal has a few hundred


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A descriptor of a folder.

    Raises:
        OSError: there is none, or it is a link.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_private(folder: Path) -> None:
    """Make a folder that only this user may enter, or take everybody else's rights from the one that is there.

    Raises:
        OSError: it cannot be made, is a link, or belongs to somebody else.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with opened(folder) as descriptor:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
            os.fchmod(descriptor, 0o700)


def is_own(about: os.stat_result) -> bool:
    """Whether a file or folder belongs to root or to this user, and nobody else may write it."""
    return about.st_uid in (0, os.geteuid()) and not stat.S_IMODE(about.st_mode) & 0o022


def read_bytes(folder: int, name: str) -> tuple[bytes, os.stat_result]:
    """What a file of a folder holds, and what is known of it.

    Args:
        folder: its descriptor.
        name: of the file.

    Raises:
        OSError: it cannot be read, is a link or no regular file, or is longer than any that wastenot writes.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as stream:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(0, "not a regular file")
        data = stream.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise OSError(0, f"longer than {_LONGEST} bytes")
    return data, about


def temporary_of(path: Path) -> Path:
    """Where a file stands while it is written."""
    return path.with_name(f".{path.name}.new")


def write(folder: int, name: str, text: str) -> None:
    """Write a file, which is on disk and complete when it appears under its name.

    Args:
        folder: descriptor of its folder.
        name: of the file, which is replaced if it exists.
        text: that it holds.

    Raises:
        OSError: it cannot be written.
    """
    temporary = temporary_of(Path(name)).name
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)  # of a process that died while it wrote
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "w") as stream:
            os.fchmod(stream.fileno(), 0o644)  # whoever may enter the folder may see who controls a GPU
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
    with suppress(OSError):  # not all file systems support it
        os.fsync(folder)
