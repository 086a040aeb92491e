"""Write files atomically: a reader never sees half of one."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from wastenot.core.errors import BadInputError

PathLike = str | os.PathLike[str]
"""What names a file or a folder."""


def user_state_folder() -> Path:
    """Where this user's programs keep what is to outlive them: ``XDG_STATE_HOME``, or ``~/.local/state``."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "wastenot"


def write_atomically(path: str | os.PathLike[str], write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then replace ``path`` with it in one step.

    A device or a pipe (``/dev/stdout``) cannot be replaced and is written directly.

    Args:
        path: the file to create or replace.
        write: called with the path to fill.

    Raises:
        BadInputError: the file cannot be written (no such folder, no permission, disk full); ``path`` is then unchanged.
    """
    target = Path(path)
    try:
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            if target.is_dir():
                raise BadInputError(f"{target}: is a folder; give a file")
            write(target)
            return
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BadInputError(f"{target}: cannot be written: {error.strerror or error}") from error


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write ``content`` with :func:`write_atomically`, which says what it raises."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    write_atomically(path, write)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` as UTF-8 with :func:`write_atomically`, which says what it raises."""
    write_bytes(path, text.encode("utf-8"))


def read_text(path: str | os.PathLike[str], remedy: str) -> str:
    """The text of a file in UTF-8, with or without a mark at its begin.

    Args:
        path: of the file.
        remedy: how to get a good one; ends every error message.

    Raises:
        BadInputError: it cannot be read, or is not in UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: byte {error.start}: is not UTF-8; {remedy}") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror or error}; {remedy}") from error


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a file that cannot be written, before long work is done for it.

    Args:
        path: of the file; it is not touched.

    Raises:
        BadInputError: it is a folder, its folder does not exist, or writing is not permitted.
    """
    target = Path(path)
    if target.is_dir():
        raise BadInputError(f"{target}: is a folder; give a file")
    if not target.parent.is_dir():
        raise BadInputError(f"{target}: cannot be written: folder {target.parent} does not exist")
    replaced = target if target.exists() and not target.is_file() else target.parent
    if not os.access(replaced, os.W_OK):
        raise BadInputError(f"{target}: cannot be written: {os.strerror(errno.EACCES)}")


def check_writable_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a folder that files cannot be written to, before long work is done for them.

    Args:
        path: of the folder; it is made later if it is missing, and not touched now.

    Raises:
        BadInputError: it is a file, or neither it nor the nearest folder above it may be written.
    """
    target = Path(path)
    if target.exists() and not target.is_dir():
        raise BadInputError(f"{target}: is a file; give a folder")
    there = next(folder for folder in (target, *target.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise BadInputError(f"{target}: cannot be made: {there} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise BadInputError(f"{target}: cannot be written: {os.strerror(errno.EACCES)}")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
