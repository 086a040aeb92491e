"""Arrays with a header, packed into bytes that a column of a database holds: compressed, and readable by NumPy alone."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEADER = "header"


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Arrays with a header.

    Attributes:
        header: what JSON can hold.
        arrays: by name.
    """

    header: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


def pack(content: Packed) -> bytes:
    """The content as bytes: an ``.npz`` archive, whose array ``header`` is JSON."""
    header = np.frombuffer(json.dumps(dict(content.header), allow_nan=False).encode(), dtype=np.uint8)
    stream = io.BytesIO()
    arrays: dict[str, Any] = {_HEADER: header} | dict(content.arrays)
    try:
        np.savez_compressed(stream, **arrays)
    except ValueError as error:  # Ctrl-C in the midst of it: the archive then complains that it cannot be closed
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise
    return stream.getvalue()


_MOST_BYTES = 1 << 29  # of arrays that are unpacked together


def unpack(content: bytes) -> Packed:
    """The inverse of :func:`pack`.

    Raises:
        ValueError: these are not bytes that it made.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            size = sum(each.file_size for each in archive.zip.infolist())
            if size > _MOST_BYTES:
                raise ValueError(f"packed arrays of {size / 1e9:.1f} GB: more than any measurement has")
            arrays = {name: archive[name] for name in archive.files}
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, KeyError, MemoryError) as error:
        raise ValueError(f"packed arrays that cannot be unpacked: {error}") from error
    if _HEADER not in arrays:
        raise ValueError("packed arrays without a header")
    return Packed(json.loads(arrays.pop(_HEADER).tobytes()), arrays)
