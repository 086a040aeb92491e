"""What servers reply, read within bounds: a reply that is too long, or compressed so that it may be, is refused."""

from __future__ import annotations

import importlib
from typing import Any, Final

from wastenot.core.errors import MissingExtraError, ServerError, first_line
from wastenot.core.install import install_line

MOST_BYTES: Final = 8 << 20
"""Of a reply that is read as a whole; a page of metrics has some hundred thousand."""

_PIECE: Final = 1 << 16


def aiohttp_or_error() -> Any:
    """The package that speaks HTTP.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module("aiohttp")
    except ImportError:
        raise MissingExtraError(
            f"measuring a server needs aiohttp, which is not installed: {install_line('serve')}"
        ) from None


def plain_session(**options: Any) -> Any:
    """A session of aiohttp that asks for replies as they are; what a server compresses all the same stays compressed.

    Args:
        options: of ``aiohttp.ClientSession``.

    Raises:
        MissingExtraError: aiohttp is not installed.
    """
    session = aiohttp_or_error().ClientSession
    return session(headers={"Accept-Encoding": "identity"}, auto_decompress=False, **options)


async def text_of(reply: Any, most: int = MOST_BYTES) -> str:
    """The text of a reply.

    Args:
        reply: of a :func:`plain_session`.
        most: bytes of it.

    Raises:
        ServerError: it is longer, or compressed.
    """
    if reply.headers.get("Content-Encoding", "identity") != "identity":
        raise ServerError("compresses its replies though asked not to; take the proxy in between out of the way")
    pieces, size = [], 0
    async for piece in reply.content.iter_chunked(_PIECE):
        size += len(piece)
        if size > most:
            raise ServerError(f"replies with more than {most >> 20} MB")
        pieces.append(piece)
    return b"".join(pieces).decode("utf-8", "replace")


def reason(error: BaseException, timeout_s: float) -> str:
    """Why nothing could be read of a server within a time."""
    if isinstance(error, TimeoutError):
        return f"does not answer within {timeout_s:g} s"
    return getattr(error, "strerror", None) or first_line(error)
