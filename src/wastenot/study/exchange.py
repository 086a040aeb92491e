"""Between sweep files and studies: what ``wastenot import`` and ``wastenot export`` do."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from wastenot.errors import BadInputError
from wastenot.origin import Origin
from wastenot.study.store import Study, open_study
from wastenot.study.sweep import Sweep
from wastenot.study.sweep_file import UNKNOWN_DEVICE, parse_sweep, read_bytes, write_sweep


def import_sweep(
    file: str | os.PathLike[str],
    study: str | os.PathLike[str] | Study,
    *,
    device: str | None = None,
    workload: str | None = None,
    origin: Origin = "measured",
    append: bool = False,
) -> Sweep:
    """Store a sweep file in a study, whole or not at all; a study file that is missing is made.

    Args:
        file: CSV, or Parquet where its name ends in .parquet or .pq.
        study: a file name, a database URL or a study that was opened with ``create``.
        device: that the rows were taken on; that of the study where not given, ``unknown`` in a new one.
        workload: its name; the name of the file without its ending where not given.
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
    target = study if isinstance(study, Study) else open_study(study, create=True)
    digest = hashlib.sha256(content).hexdigest()
    return target.add(sweep, source=Path(file).name, sha256=digest, append=append)


def export_sweep(study: str | os.PathLike[str] | Study, file: str | os.PathLike[str], workload: str | None = None) -> Sweep:
    """Write a workload of a study to a sweep file.

    Args:
        study: a file name, a database URL or an open study.
        file: to make or replace: CSV, or Parquet where its name ends in .parquet or .pq.
        workload: its name; may be left out where the study holds only one.

    Returns:
        The sweep that was written.

    Raises:
        BadInputError: there is no such workload, or the file cannot be written.
        StudyError: the study cannot be read.
        MissingExtraError: it is to be a Parquet file and Polars is not installed.
    """
    source = study if isinstance(study, Study) else open_study(study)
    if source.path is not None and Path(file).exists() and source.path.exists() and source.path.samefile(file):
        raise BadInputError(f"{file}: is the study itself; name another file")
    sweep = source.read(workload)
    write_sweep(sweep, file)
    return sweep
