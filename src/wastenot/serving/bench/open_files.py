"""Room for as many connections as a load needs: every one is an open file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from wastenot.core.errors import BadInputError

_MANY = 1 << 14
_BESIDE = 256  # files of the program itself


@contextmanager
def open_files(connections: int | None) -> Iterator[None]:
    """Let this process open so many connections inside the context, within what the system allows it.

    Args:
        connections: at once; ``None`` for as many as there may come to be.

    Raises:
        BadInputError: the system does not allow as many.
    """
    try:
        import resource
    except ImportError:  # a system without such limits
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = (_MANY if connections is None else connections) + _BESIDE
    if connections is None and hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        yield
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BadInputError(
            f"{connections:,} requests at once: need as many connections, and this process may have {hard:,} files open; "
            f"raise its limit, as with 'ulimit -Hn {needed}'"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
