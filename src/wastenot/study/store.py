"""A study: measurements of any number of workloads on one device, kept in an SQLite file or on a server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wastenot.errors import BadInputError, StudyError
from wastenot.origin import Origin
from wastenot.study import records, schema
from wastenot.study.address import parse_address
from wastenot.study.bulk import insert_rows, select_rows
from wastenot.study.captured import read_captured, store_captured
from wastenot.study.columns import shown
from wastenot.study.database import Database, connect
from wastenot.study.faults import DAMAGED
from wastenot.study.recorder import Measurement, Recorder, read_trials
from wastenot.study.state import State, choose_workload
from wastenot.study.summary import ImportSummary, StudySummary, imports_of, summarise_workloads
from wastenot.study.sweep import Kernel, Sweep
from wastenot.study.validation import check_sweep
from wastenot.workloads.kernel import KernelSpec


def open_study(where: str | os.PathLike[str], *, create: bool = False, busy_timeout_s: float = 5.0) -> Study:
    """Open a study.

    Args:
        where: a file name, or any SQLAlchemy URL such as ``postgresql://user@host/database``.
        create: let the first :meth:`Study.add` make a file that is missing; nothing is made before.
        busy_timeout_s: how long to wait for another program that is writing to it.

    Raises:
        StudyError: there is no such file and ``create`` is not set, the URL is wrong or its driver is missing.
    """
    database = connect(parse_address(where), timeout_s=busy_timeout_s, create=create)
    if not create:
        database.check_there()
    return Study(database)


@dataclass(frozen=True, slots=True)
class Study:
    """A study that is open; get one from :func:`open_study`. Nothing is held between calls: no need to close it."""

    _database: Database

    @property
    def path(self) -> Path | None:
        """The file of the study; ``None`` where it lies on a server."""
        return self._database.address.path

    def __str__(self) -> str:
        return self._database.address.label

    def add(self, sweep: Sweep, *, source: str, sha256: str | None = None, append: bool = False) -> Sweep:
        """Store a sweep, whole or not at all.

        Args:
            sweep: its ``device`` may be ``unknown``, which stands for the device of the study.
            source: where it comes from, such as the name of a file.
            sha256: of the content of that file, in hexadecimal.
            append: add the rows, as repeats and further settings, to those that the workload has already.

        Returns:
            The sweep with the device that it is stored under.

        Raises:
            BadInputError: the sweep breaks a rule, or does not agree with what the study holds.
            StudyError: the study cannot be written.
        """
        check_sweep(sweep, with_baseline=[kernel.name for kernel in sweep.kernels] if append else ())
        with self._database.writing() as connection:
            device = records.prepare(connection, str(self), sweep.device)
            workload = records.workload_id(connection, sweep.workload)
            if workload is None:
                check_sweep(sweep)
                workload = records.inserted_id(connection, schema.workloads, name=sweep.workload)
            else:
                _check_agreement(sweep, sha256, append, imports_of(connection, workload), str(self))
                there = records.kernels_of(connection, workload)[1]
                check_sweep(sweep, with_baseline={kernel.name for kernel in there})
            kernel_ids = records.store_kernels(connection, sweep.kernels, sweep.workload, workload)
            import_id = records.inserted_id(
                connection,
                schema.imports,
                workload_id=workload,
                source=source,
                sha256=sha256,
                rows=len(sweep),
                origin=sweep.origin,
                imported_at=records.now(),
            )
            insert_rows(connection, sweep, import_id, kernel_ids)
        return replace(sweep, device=device)

    @contextmanager
    def recording(
        self,
        kernels: tuple[Kernel, ...],
        *,
        workload: str,
        device: str,
        origin: Origin,
        source: str,
        specs: Sequence[KernelSpec] = (),
    ) -> Iterator[Recorder]:
        """Keep measurements of a workload one by one as they are made; what is there already is gone on with.

        Args:
            kernels: of the workload, in order of execution.
            workload: its name.
            device: that measures.
            origin: of the numbers.
            source: what makes them.
            specs: what the kernels compute. Of captured ones it is kept, with the index values that they ran with.

        Raises:
            BadInputError: the study is of another device, or the workload of other kernels or another origin.
            StudyError: the study cannot be written.
        """
        with self._database.writing() as connection:
            found = records.prepare(connection, str(self), device)
            if found != device:
                raise BadInputError(
                    f"{self}: device: holds measurements of {shown(found)}, not of {shown(device)}; name another study"
                )
            workload_id = records.workload_id(connection, workload)
            if workload_id is None:
                workload_id = records.inserted_id(connection, schema.workloads, name=workload)
            else:
                _check_origin(imports_of(connection, workload_id), workload, origin, str(self))
            members = tuple(kernels)
            ids = records.store_kernels(connection, members, workload, workload_id)
            kernel_ids = dict(zip((kernel.name for kernel in members), ids.tolist(), strict=True))
            store_captured(connection, {spec.name: spec for spec in specs}, kernel_ids)
            import_id = records.inserted_id(
                connection,
                schema.imports,
                workload_id=workload_id,
                source=source,
                sha256=None,
                rows=0,
                origin=origin,
                imported_at=records.now(),
            )
            done = records.settings_done(connection, workload_id)
        with self._database.keeping() as transaction:
            yield Recorder(transaction, import_id, kernel_ids, done)

    def workloads(self) -> tuple[str, ...]:
        """The names of the workloads, in order of their first import; none where the study holds nothing yet.

        Raises:
            StudyError: the study cannot be read.
        """
        with self._database.reading() as connection:
            if records.read_header(connection, str(self)) is None:
                return ()
            return records.workload_names(connection)

    def read(self, workload: str | None = None, state: State | None = None) -> Sweep:
        """Fetch a workload.

        Args:
            workload: its name; may be left out where the study holds only one.
            state: that its energies were taken in; by default the one that the name says, else steady power.

        Raises:
            BadInputError: there is no such workload, or there are several and none is named.
            StudyError: the study holds nothing yet or cannot be read.
        """
        with self._database.reading() as connection:
            header = _filled(records.read_header(connection, str(self)), str(self))
            name = choose_workload(workload, state, records.workload_names(connection), str(self))
            workload_id = records.workload_id(connection, name)
            assert workload_id is not None
            ids, members = records.kernels_of(connection, workload_id)
            history = imports_of(connection, workload_id)
            try:
                row_ids, numbers = select_rows(connection, workload_id)
                kernel_index = np.searchsorted(ids, row_ids)
                if not np.array_equal(np.take(ids, kernel_index, mode="clip"), row_ids):
                    raise BadInputError("a row names a kernel that is not there")
                whole = sum(entry.rows for entry in history) == len(kernel_index)
                if whole and len(np.unique(kernel_index)) < len(members):
                    raise StudyError(f"{self}: {_unfinished(name, members, kernel_index)}")
                sweep = Sweep(
                    kernels=members,
                    kernel_index=kernel_index,
                    workload=name,
                    device=header.device,
                    origin=history[0].origin,  # type: ignore[arg-type]  # checked below
                    **numbers,
                )
                check_sweep(sweep)
            except (BadInputError, ValueError, TypeError, IndexError) as error:
                raise StudyError(f"{self}: {DAMAGED} ({error})") from error
        return sweep

    def measurements(self, workload: str | None = None) -> tuple[Measurement, ...]:
        """Measurements that wastenot made itself, and how each came about, in the order they were made.

        Raises:
            BadInputError: there is no such workload, or there are several and none is named.
            StudyError: the study holds nothing yet or cannot be read.
        """
        with self._database.reading() as connection:
            _filled(records.read_header(connection, str(self)), str(self))
            name = choose_workload(workload, None, records.workload_names(connection), str(self))
            workload_id = records.workload_id(connection, name)
            assert workload_id is not None
            return read_trials(connection, workload_id)

    def captured(self, workload: str) -> dict[str, KernelSpec]:
        """What the captured kernels of a workload compute, by name; nothing of kernels by formula and imported ones.

        Raises:
            BadInputError: there is no such workload.
            StudyError: the study holds nothing yet or cannot be read.
        """
        with self._database.reading() as connection:
            _filled(records.read_header(connection, str(self)), str(self))
            name = choose_workload(workload, None, records.workload_names(connection), str(self))
            workload_id = records.workload_id(connection, name)
            assert workload_id is not None
            try:
                return read_captured(connection, workload_id)
            except (ValueError, TypeError, AttributeError) as error:
                raise StudyError(f"{self}: {DAMAGED} ({error})") from error

    def summary(self) -> StudySummary:
        """What the study holds, in brief.

        Raises:
            StudyError: the study holds nothing yet or cannot be read.
        """
        with self._database.reading() as connection:
            header = _filled(records.read_header(connection, str(self)), str(self))
            try:
                found = summarise_workloads(connection)
            except (ZeroDivisionError, ValueError, TypeError, IndexError) as error:
                raise StudyError(f"{self}: {DAMAGED} ({error})") from error
        return StudySummary(header.device, header.schema_version, header.created_by, header.created_at, found)


def _unfinished(workload: str, kernels: tuple[Kernel, ...], kernel_index: NDArray[np.int64]) -> str:
    missing = [kernel.name for index, kernel in enumerate(kernels) if index not in set(kernel_index.tolist())]
    return (
        f"the sweep of workload {shown(workload)} has not come to {len(missing)} of its kernels yet, first "
        f"{shown(missing[0])}; go on with it: wastenot sweep, with the same words as before"
    )


def _filled(header: records.Header | None, label: str) -> records.Header:
    if header is None:
        raise StudyError(f"{label}: holds nothing yet; fill it: wastenot import SWEEP.csv --study {label}")
    return header


def _check_origin(history: tuple[ImportSummary, ...], workload: str, origin: Origin, label: str) -> None:
    """Refuse to mix numbers of different origin in one workload."""
    if origin != history[0].origin:
        raise BadInputError(
            f"{label}: origin: the rows of workload {shown(workload)} are {history[0].origin}, "
            f"the new ones {origin}; never mix them: name another workload"
        )


def _check_agreement(sweep: Sweep, sha256: str | None, append: bool, history: tuple[ImportSummary, ...], label: str) -> None:
    _check_origin(history, sweep.workload, sweep.origin, label)
    if append:
        return
    same = next((entry for entry in history if sha256 is not None and entry.sha256 == sha256), None)
    if same is not None:
        raise BadInputError(
            f"{label}: workload {shown(sweep.workload)} holds this very content already (imported from {same.source} "
            f"at {same.imported_at.isoformat()}); nothing to do, or add it again as repeats: --append"
        )
    raise BadInputError(
        f"{label}: workload {shown(sweep.workload)} has {sum(entry.rows for entry in history)} rows already; "
        "add these to them with --append, or name another: --workload NAME"
    )
