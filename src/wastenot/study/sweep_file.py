"""A sweep from a file and to a file: CSV, or Parquet where the name ends in .parquet or .pq."""

from __future__ import annotations

import os
from pathlib import Path

from wastenot.errors import BadInputError
from wastenot.files import write_atomically
from wastenot.origin import Origin
from wastenot.study.assemble import assemble
from wastenot.study.sweep import Sweep, in_order_of_execution
from wastenot.study.validation import check_sweep

UNKNOWN_DEVICE = "unknown"


def read_sweep(
    path: str | os.PathLike[str],
    *,
    workload: str | None = None,
    device: str = UNKNOWN_DEVICE,
    origin: Origin = "measured",
) -> Sweep:
    """Read a sweep file.

    Args:
        path: the file.
        workload: name of the workload; the name of the file without its ending where not given.
        device: name of the device.
        origin: where the numbers come from.

    Raises:
        BadInputError: one line that names file, line and field, what is wrong and how to mend it.
        MissingExtraError: it is a Parquet file and Polars is not installed.
    """
    return parse_sweep(read_bytes(path), path, workload=workload, device=device, origin=origin)


def parse_sweep(
    content: bytes,
    path: str | os.PathLike[str],
    *,
    workload: str | None = None,
    device: str = UNKNOWN_DEVICE,
    origin: Origin = "measured",
) -> Sweep:
    """As :func:`read_sweep`, for a file whose bytes are at hand already."""
    name = os.fspath(path)
    if _is_parquet(path):
        from wastenot.study.parquet_file import parse_parquet

        table = parse_parquet(content, name)
    else:
        from wastenot.study.csv_file import parse_csv

        table = parse_csv(content, name)
    return assemble(table, workload=workload or Path(path).stem, device=device, origin=origin)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file.

    Raises:
        BadInputError: it is missing, a folder or may not be read.
    """
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: there is no such file; check the name") from error
    except IsADirectoryError as error:
        raise BadInputError(f"{path}: is a folder; name a file") from error
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def write_sweep(sweep: Sweep, path: str | os.PathLike[str]) -> None:
    """Write a sweep file; reading it gives the same rows, in order of execution where they were not.

    Args:
        sweep: what to write.
        path: the file to make or replace.

    Raises:
        BadInputError: the sweep breaks a rule of these files, or the file cannot be written; what stood there
            before is untouched.
        MissingExtraError: it is to be a Parquet file and Polars is not installed.
    """
    check_sweep(sweep)
    sweep = in_order_of_execution(sweep)
    if _is_parquet(path):
        from wastenot.study.parquet_file import render_parquet

        content = render_parquet(sweep)
        write_atomically(path, lambda temporary: _write(temporary, content))
        return
    from wastenot.study.csv_file import render_csv

    def write(temporary: Path) -> None:
        with temporary.open("wb") as stream:
            stream.writelines(render_csv(sweep))

    write_atomically(path, write)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _is_parquet(path: str | os.PathLike[str]) -> bool:
    return Path(path).suffix.lower() in (".parquet", ".pq")
