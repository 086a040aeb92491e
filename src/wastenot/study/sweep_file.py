"""Sweep files, read, written, imported and exported: CSV, or Parquet where the name ends in .parquet or .pq.

The name ``-`` is standard input or output; what comes from there is CSV, or Parquet where it begins like it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from wastenot.core.errors import BadInputError
from wastenot.core.files import write_atomically
from wastenot.core.origin import Origin
from wastenot.study.catalog import UNKNOWN_DEVICE
from wastenot.study.store import Study, open_study
from wastenot.study.sweep import Sweep, check_sweep, in_order_of_execution
from wastenot.study.table import assemble
from wastenot.workloads.build import run_named
from wastenot.workloads.identity import EnergyState, Granularity

STANDARD = "-"
"""Stands for standard input or output in the place of a file's name."""

_NO_SWEEPS = (".xlsx", ".xls", ".ods", ".json", ".db", ".html")
_PARQUET_BEGINS = b"PAR1"


def read_sweep(
    path: str | os.PathLike[str], *, workload: str | None = None, device: str = UNKNOWN_DEVICE, origin: Origin = "measured"
) -> Sweep:
    """Read a sweep file.

    Args:
        path: the file, or ``-`` for standard input.
        workload: name of the workload; the name of the file without its ending where not given.
        device: name of the device.
        origin: where the numbers come from.

    Raises:
        BadInputError: one line that names file, line and field, what is wrong and how to fix it.
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
    name = _shown(path)
    if _is_parquet(path) or (name != os.fspath(path) and content.startswith(_PARQUET_BEGINS)):
        from wastenot.study.parquet_file import parse_parquet

        table = parse_parquet(content, name)
    else:
        from wastenot.study.csv_file import parse_csv

        table = parse_csv(content, name)
    return assemble(table, workload=workload or Path(name).stem, device=device, origin=origin)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file, or of standard input.

    Raises:
        BadInputError: it is missing, a folder or may not be read.
    """
    try:
        return sys.stdin.buffer.read() if os.fspath(path) == STANDARD else Path(path).read_bytes()
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: there is no such file; check the name") from error
    except IsADirectoryError as error:
        raise BadInputError(f"{path}: is a folder; name a file") from error
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def write_sweep(sweep: Sweep, path: str | os.PathLike[str], *, keep_formulas: bool = False) -> None:
    """Write a sweep file; reading it gives the same rows, in order of execution where they were not.

    Args:
        sweep: what to write.
        path: the file to make or replace, or ``-`` for standard output, which takes CSV.
        keep_formulas: in CSV, write names that begin as a formula does (``=``, ``+``, ``-``, ``@``) as they are, rather than
            behind an apostrophe, which reading takes away again.

    Raises:
        BadInputError: the sweep breaks a rule of these files, or the file cannot be written; the earlier
            file is untouched.
        MissingExtraError: it is to be a Parquet file and Polars is not installed.
    """
    if Path(path).suffix.lower() in _NO_SWEEPS:
        raise BadInputError(f"{path}: a sweep is written as CSV or Parquet; name the file .csv or .parquet")
    check_sweep(sweep)
    sweep = in_order_of_execution(sweep)
    if _is_parquet(path):
        from wastenot.study.parquet_file import render_parquet

        pieces: Iterable[bytes] = [render_parquet(sweep)]
    else:
        from wastenot.study.csv_file import render_csv

        pieces = render_csv(sweep, keep_formulas=keep_formulas)

    if os.fspath(path) == STANDARD:
        sys.stdout.writelines(piece.decode() for piece in pieces)
        return

    def write(temporary: Path) -> None:
        with temporary.open("wb") as stream:
            stream.writelines(pieces)

    write_atomically(path, write)


def import_sweep(
    file: str | os.PathLike[str],
    study: str | os.PathLike[str] | Study,
    *,
    device: str | None = None,
    workload: str | None = None,
    state: EnergyState | None = None,
    granularity: Granularity | None = None,
    origin: Origin = "measured",
    append: bool = False,
) -> Sweep:
    """Store a sweep file in a study, whole or not at all; a study file that is missing is made.

    Args:
        file: CSV, or Parquet where its name ends in .parquet or .pq; ``-`` for standard input.
        study: a file name, a database URL or a study that was opened with ``create``.
        device: that the rows were taken on; that of the study where not given, ``unknown`` in a new one.
        workload: its name; the name of the file without its ending where not given, ``stdin`` of ``-``. The name of a
            model, such as ``gpt3-xl-batch10``, also says what the kernels compute.
        state: that the energies were taken in, where the file does not say; steady power by default.
        granularity: what was measured as one, where the file does not say; kernels by default.
        origin: where the numbers come from.
        append: add the rows to those that the workload has already.

    Returns:
        The sweep as stored.

    Raises:
        BadInputError: the file breaks a rule, or does not agree with what the study holds.
        StudyError: the study cannot be written.
        MissingExtraError: it is a Parquet file and Polars is not installed.
    """
    content = read_bytes(file)
    sweep = parse_sweep(content, file, workload=workload, device=device or UNKNOWN_DEVICE, origin=origin)
    sweep = _named(sweep, _shown(file), state, granularity)
    target = open_study(study, create=True)
    digest = hashlib.sha256(content).hexdigest()
    return target.add(sweep, source=Path(_shown(file)).name, sha256=digest, append=append)


def _named(sweep: Sweep, file: str, state: EnergyState | None, granularity: Granularity | None) -> Sweep:
    """The sweep with what a person says of it."""
    for argument, given, held, default in (
        ("state", state, sweep.state, "ssp"),
        ("granularity", granularity, sweep.granularity, "kernel"),
    ):
        if given not in (None, held) and held != default:
            raise BadInputError(f"`{argument}` {given}: {file} sets {held}; leave it out")
    run = sweep.run or run_named(sweep.workload)
    return replace(sweep, state=state or sweep.state, granularity=granularity or sweep.granularity, run=run)


def export_sweep(
    study: str | os.PathLike[str] | Study,
    file: str | os.PathLike[str],
    workload: str | None = None,
    *,
    state: EnergyState | None = None,
    granularity: Granularity | None = None,
    keep_formulas: bool = False,
) -> Sweep:
    """Write a workload of a study to a sweep file.

    Args:
        study: a file name, a database URL or an open study.
        file: to make or replace: CSV, or Parquet where its name ends in .parquet or .pq; ``-`` for standard output.
        workload: its name; may be left out where the study holds only one.
        state: of its energies; see :meth:`Study.read`.
        granularity: that it was measured by; see :meth:`Study.read`.
        keep_formulas: as of :func:`write_sweep`.

    Returns:
        The sweep that was written.

    Raises:
        BadInputError: there is no such workload, or the file cannot be written.
        StudyError: the study cannot be read.
        MissingExtraError: it is to be a Parquet file and Polars is not installed.
    """
    source = open_study(study)
    if source.path is not None and Path(file).exists() and source.path.exists() and source.path.samefile(file):
        raise BadInputError(f"{file}: is the study itself; name another file")
    sweep = source.read(workload, state, granularity)
    write_sweep(sweep, file, keep_formulas=keep_formulas)
    return sweep


def _shown(path: str | os.PathLike[str]) -> str:
    """How messages name a file."""
    return "stdin" if os.fspath(path) == STANDARD else os.fspath(path)


def _is_parquet(path: str | os.PathLike[str]) -> bool:
    return Path(path).suffix.lower() in (".parquet", ".pq")
