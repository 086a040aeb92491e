"""Where sessions listen: a private folder of the user's, a socket for each session."""

from __future__ import annotations

import itertools
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from wastenot.core.errors import BadInputError

_LONGEST_PATH = 100  # of a Unix socket; Linux allows 107
_NUMBERS = itertools.count(1)  # of the sessions of this process


def runtime_folder() -> Path:
    """The folder: ``WASTENOT_RUNTIME``, else wastenot's in the user's runtime directory or the temporary folder."""
    named = os.environ.get("WASTENOT_RUNTIME")
    if named:
        return Path(named)
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.path.isdir(base):
        return Path(base) / "wastenot"
    if os.geteuid() == 0:
        return Path("/run/wastenot-sessions")
    return Path(tempfile.gettempdir()) / f"wastenot-{os.geteuid()}"


def make_socket_path(name: str) -> Path:
    """Path of a socket in the folder, which is made where it is missing.

    Args:
        name: of the session.

    Raises:
        BadInputError: the folder is somebody else's, or others may look into it.
        OSError: it cannot be made.
    """
    folder = runtime_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise BadInputError(
            f"{folder}: must be a folder of your own that nobody else can access; chmod 700 it, or set "
            "WASTENOT_RUNTIME to another"
        )
    path = folder / f"{name}.sock"
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise BadInputError(f"{path}: is too long for a socket; set WASTENOT_RUNTIME to a shorter folder")
    return path


def make_own_socket_path(kind: str) -> Path:
    """Path of a socket that no other session has, of a kind; errors are those of :func:`make_socket_path`."""
    return make_socket_path(f"{kind}-{os.getpid()}-{next(_NUMBERS)}")


def socket_paths() -> tuple[Path, ...]:
    """Sockets of sessions, those that died included, by name; none in a folder that others may write."""
    with suppress(OSError):
        found = runtime_folder().lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            return ()
        return tuple(sorted(runtime_folder().glob("*.sock")))
    return ()
