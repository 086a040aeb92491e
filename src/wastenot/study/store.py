"""A study: measurements of any number of workloads on one device, kept in an SQLite file or on a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from wastenot.core.errors import BadInputError, StudyError
from wastenot.core.files import PathLike
from wastenot.core.origin import Origin
from wastenot.core.setting import Setting
from wastenot.study import catalog, schema
from wastenot.study.address import parse_address
from wastenot.study.captured import Steps, read_captured, store_captured
from wastenot.study.catalog import ImportSummary, StoredWorkload, StudyHeader, choose_workload
from wastenot.study.coverage import Intent
from wastenot.study.database import DAMAGED, Database, connect
from wastenot.study.lease import kept_alive, take
from wastenot.study.natural_log import KeptTimeline, curve_errors, read_curves, read_timelines
from wastenot.study.packing import Packed
from wastenot.study.recorder import Measurement, Recorder, read_measurements
from wastenot.study.rows import insert_rows, select_rows
from wastenot.study.summary import StudySummary, summarise_workload
from wastenot.study.sweep import Kernel, Sweep, check_sweep, quoted
from wastenot.study.sweep_log import begin_sweep, recorded_sweeps
from wastenot.workloads.identity import EnergyState, Granularity, ModelRun, WorkloadKey


def open_study(where: PathLike | Study, *, create: bool = False, look: bool = True, busy_timeout_s: float = 5.0) -> Study:
    """Open a study.

    Args:
        where: a file name, or any SQLAlchemy URL such as ``postgresql://user@host/database``; a study that is open is
            returned as it is.
        create: let the first :meth:`Study.add` make a file that is missing; nothing is made before.
        look: refuse at once what could not be read or made; otherwise the first use does.
        busy_timeout_s: how long to wait for another program that is writing to it.

    Raises:
        StudyError: there is no such file and ``create`` is not set, or no folder to make it in; the URL is wrong or its
            driver is missing.
    """
    if isinstance(where, Study):
        return where
    database = connect(parse_address(where), timeout_s=busy_timeout_s, create=create)
    if look:
        (database.check_makeable if create else database.check_there)()
    return Study(database)


@dataclass(frozen=True, slots=True, repr=False)
class Study:
    """A study that is open; get one from :func:`open_study`. Nothing is held between calls: no need to close it."""

    _database: Database

    @property
    def database(self) -> Database:
        """What it is kept in."""
        return self._database

    @property
    def path(self) -> Path | None:
        """The file of the study; ``None`` where it lies on a server."""
        return self._database.address.path

    def __str__(self) -> str:
        return self._database.address.label

    def __repr__(self) -> str:
        return f"Study({str(self)!r})"

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
            device = catalog.prepare(connection, str(self), sweep.device)
            workload = catalog.find_workload(connection, sweep.key)
            if workload is None:
                check_sweep(sweep)
                workload = catalog.add_workload(connection, sweep.key, sweep.run)
            else:
                _check_agreement(sweep, sha256, append, catalog.imports_of(connection, workload), str(self))
                there = catalog.kernels_of(connection, workload)[1]
                check_sweep(sweep, with_baseline={kernel.name for kernel in there})
            kernel_ids = catalog.store_kernels(connection, sweep.kernels, sweep.workload, workload)
            import_id = catalog.add_import(connection, workload, source, sweep.origin, rows=len(sweep), sha256=sha256)
            insert_rows(connection, sweep, import_id, kernel_ids)
        return replace(sweep, device=device)

    @contextmanager
    def recording(
        self,
        kernels: tuple[Kernel, ...],
        *,
        workload: WorkloadKey | str,
        device: str,
        origin: Origin,
        source: str,
        run: ModelRun | None = None,
        steps: Mapping[str, Steps] | None = None,
        captured_on: str | None = None,
        intent: Intent | None = None,
    ) -> Iterator[Recorder]:
        """Store measurements of a workload one by one as they are made, after those that are stored already.

        No other process may do so at the same time.

        Args:
            kernels: of the workload, in order of execution.
            workload: what identifies it; a name stands for kernels in steady power.
            device: that measures.
            origin: of the numbers.
            source: what makes them.
            run: the model that it is of, and how that is run.
            steps: what each kernel runs, by name. Captured operations are stored, with the index values they ran with.
            captured_on: the kind of device that the workload was captured on.
            intent: what the measurements are to add up to, which the study remembers; :meth:`Recorder.finish` says
                that they did.

        Raises:
            BadInputError: the study is of another device, or the workload of other kernels or another origin.
            StudyError: the study cannot be written, or another process is measuring the workload.
        """
        key = workload if isinstance(workload, WorkloadKey) else WorkloadKey(workload)
        with self._database.writing() as connection:
            held = catalog.prepare(connection, str(self), device)
            _check_device(held, device, str(self))
            workload_id = catalog.find_workload(connection, key)
            if workload_id is None:
                workload_id = catalog.add_workload(connection, key, run)
            else:
                _check_origin(catalog.imports_of(connection, workload_id), key.name, origin, str(self))
            ids = catalog.store_kernels(connection, kernels, key.name, workload_id)
            label = f"{self}: workload {quoted(str(key))}"
            what = source if intent is None or intent.command is None else intent.command
            lease = take(connection, workload_id, label, what)
            kernel_ids = dict(zip((kernel.name for kernel in kernels), ids.tolist(), strict=True))
            store_captured(connection, steps or {}, kernel_ids)
            if captured_on is not None:
                catalog.store_captured_on(connection, workload_id, captured_on)
            sweep_id = None if intent is None else begin_sweep(connection, workload_id, intent)
            import_id = catalog.add_import(connection, workload_id, source, origin)
            done = catalog.settings_done(connection, workload_id)
        # Whatever happens now, a file that has gone is not made again.
        with kept_alive(lease, replace(self._database, create=False).writing), self._database.keeping() as transaction:
            yield Recorder(transaction, label, lease, import_id, sweep_id, kernel_ids, done)

    def workloads(self) -> tuple[WorkloadKey, ...]:
        """What the study holds measurements of, in order of their first import; nothing where it is empty.

        Raises:
            StudyError: the study cannot be read.
        """
        with self._database.reading() as connection:
            if catalog.read_header(connection, str(self)) is None:
                return ()
            return tuple(stored.key for stored in self._stored(connection))

    def settings_done(self, workload: WorkloadKey, device: str) -> dict[tuple[str, Setting], int]:
        """How often each kernel of a workload was measured at each setting; nothing where there is none, or no study yet.

        Args:
            workload: what identifies it.
            device: that is to measure more of it.

        Raises:
            BadInputError: the study is of another device.
            StudyError: the study cannot be read.
        """
        path = self.path
        if path is not None and not path.exists():
            return {}
        with self._database.reading() as connection:
            header = catalog.read_header(connection, str(self))
            if header is None:
                return {}
            _check_device(header.device, device, str(self))
            found = catalog.find_workload(connection, workload)
            return {} if found is None else catalog.settings_done(connection, found)

    def read(
        self,
        workload: str | None = None,
        state: EnergyState | None = None,
        granularity: Granularity | None = None,
        *,
        finer: bool = False,
        partial: bool = False,
    ) -> Sweep:
        """Fetch a workload.

        Args:
            workload: its name; may be left out where the study holds only one.
            state: that its energies were taken in; by default steady power, else the one that was measured first.
            granularity: that it was measured by; by default the finest there is.
            finer: take measurements of another granularity, the finest, where there are none of this one: a plan by pass can
                be made of measured passes, or of kernels that share a setting.
            partial: where a sweep has not reached all kernels yet, fetch those that it has, rather than refuse.

        Raises:
            BadInputError: there is no such workload, or there are several and none is named.
            StudyError: the study holds nothing yet or cannot be read.
        """
        with self._workload(workload, state, granularity, finer=finer) as (connection, header, stored):
            ids, members = catalog.kernels_of(connection, stored.id)
            history = catalog.imports_of(connection, stored.id)
            row_ids, numbers = select_rows(connection, stored.id)
            kernel_index = np.searchsorted(ids, row_ids)
            if not np.array_equal(np.take(ids, kernel_index, mode="clip"), row_ids):
                raise ValueError("a row refers to a kernel that does not exist")
            whole = sum(entry.rows for entry in history) == len(kernel_index)
            reached, kernel_index_of_reached = np.unique(kernel_index, return_inverse=True)
            unreached: tuple[str, ...] = ()
            if whole and len(reached) < len(members):
                if not partial or not len(reached):
                    raise StudyError(f"{self}: {_unfinished(stored.key, members, kernel_index)}")
                unreached = tuple(each.name for index, each in enumerate(members) if index not in set(reached.tolist()))
                members, kernel_index = tuple(members[index] for index in reached), kernel_index_of_reached
            sweep = Sweep(
                kernels=members,
                kernel_index=kernel_index,
                workload=stored.key.name,
                device=header.device,
                origin=history[0].origin,  # type: ignore[arg-type]  # checked below
                state=stored.key.state,
                granularity=stored.key.granularity,
                run=stored.run,
                captured_on=stored.captured_on,
                recorded=recorded_sweeps(connection, stored.id),
                curve_errors=curve_errors(connection, stored.id) if stored.key.state == "natural" else {},
                unreached=unreached,
                latency=catalog.latest_latency(connection),
                **numbers,
            )
            check_sweep(sweep)
        return sweep

    def measurements(
        self, workload: str | None = None, state: EnergyState | None = None, granularity: Granularity | None = None
    ) -> tuple[Measurement, ...]:
        """Measurements that wastenot made itself, and how each came about, in the order they were made.

        Args and errors are those of :meth:`read`.
        """
        with self._workload(workload, state, granularity) as (connection, _, chosen):
            return read_measurements(connection, chosen.id)

    def timelines(
        self, workload: str | None = None, kernel: str | None = None, granularity: Granularity | None = None
    ) -> tuple[KeptTimeline, ...]:
        """What was seen of the kernels of a workload at natural clocks, in the order it was.

        Args:
            workload: its name; may be left out where the study holds only one.
            kernel: the only one wanted; by default all.
            granularity: that it was measured by.

        Raises:
            BadInputError: there is no such workload, or it was not measured at natural clocks.
            StudyError: the study cannot be read.
        """
        with self._workload(workload, "natural", granularity) as (connection, _, chosen):
            return tuple(read_timelines(connection, chosen.id, kernel))

    def natural_curves(self, workload: str | None = None, granularity: Granularity | None = None) -> dict[str, Packed]:
        """What was estimated of each kernel at natural clocks, besides its rows, by its name.

        Args and errors are those of :meth:`timelines`.
        """
        with self._workload(workload, "natural", granularity) as (connection, _, chosen):
            return read_curves(connection, chosen.id)

    def check_device(self, device: str) -> None:
        """Refuse a study of another device; one that holds nothing yet is of any.

        Raises:
            BadInputError: it is of another.
            StudyError: it cannot be read.
        """
        if self.path is not None and not self.path.exists():
            return
        with self._database.reading() as connection:
            header = catalog.read_header(connection, str(self))
        if header is not None:
            _check_device(header.device, device, str(self))

    def keep_latency(self, document: str, device: str) -> None:
        """Store how long the device takes to switch clocks; what was stored before stays, and no longer counts.

        Args:
            document: ``wastenot.latency/1``.
            device: that it was measured on.

        Raises:
            BadInputError: the study is of another device.
            StudyError: the study cannot be written.
        """
        with self._database.writing() as connection:
            catalog.prepare(connection, str(self), device)
            catalog.keep_latency(connection, document)

    def latency(self) -> str | None:
        """The document ``wastenot.latency/1`` that was stored last; ``None`` where there is none.

        Raises:
            StudyError: the study cannot be read.
        """
        with self._database.reading() as connection:
            there = catalog.read_header(connection, str(self)) is not None
            return catalog.latest_latency(connection) if there else None

    def captured(
        self, workload: str | None = None, state: EnergyState | None = None, granularity: Granularity | None = None
    ) -> dict[str, Steps]:
        """The captured operations that each kernel of a workload runs, or each pass; nothing of models and imports.

        Args and errors are those of :meth:`read`.
        """
        with self._workload(workload, state, granularity) as (connection, _, chosen):
            return read_captured(connection, chosen.id)

    @contextmanager
    def _workload(
        self, name: str | None, state: EnergyState | None, granularity: Granularity | None, *, finer: bool = False
    ) -> Iterator[tuple[Connection, StudyHeader, StoredWorkload]]:
        """A transaction that reads the workload that is meant; what cannot be is told as damage of the study."""
        with self._database.reading() as connection:
            header = self._header(connection)
            stored = self._stored(connection)
            if not stored:  # it may know a device by its latencies alone
                raise self._unmeasured()
            chosen = choose_workload(stored, str(self), name, state, granularity, finer=finer)
            with self._whole():
                yield connection, header, chosen

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Turn what a study that is whole never raises into an error that says so."""
        try:
            yield
        except (BadInputError, ArithmeticError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise StudyError(f"{self}: {DAMAGED} ({error})") from error

    def _header(self, connection: Connection, *, measured: bool = True) -> StudyHeader:
        header = catalog.read_header(connection, str(self))
        if header is not None and measured and header.device == catalog.NO_DEVICE:
            raise self._unmeasured()
        if header is None:
            raise StudyError(
                f"{self}: is empty; fill it: wastenot kernel sweep WORKLOAD --device D --study {self}, "
                f"or from a file: wastenot study import SWEEP.csv --study {self}"
            )
        return header

    def _unmeasured(self) -> StudyError:
        return StudyError(
            f"{self}: holds no measurements of kernels; see what it holds: wastenot show {self}, or measure "
            f"a workload: wastenot kernel sweep WORKLOAD --device D --study {self}"
        )

    def _stored(self, connection: Connection) -> tuple[StoredWorkload, ...]:
        with self._whole():
            return catalog.stored_workloads(connection)

    def summary(self) -> StudySummary:
        """What the study holds, in brief.

        Raises:
            StudyError: the study holds nothing yet or cannot be read.
        """
        with self._database.reading() as connection:
            header = self._header(connection, measured=False)
            with self._whole():
                held = tuple(summarise_workload(connection, each) for each in self._stored(connection))
                others = {name: held for each in schema.subjects() for name, held in each.in_brief(connection).items()}
        return StudySummary(header.device, header.schema_version, header.created_by, header.created_at, held, others)


Source = PathLike | Study | Sweep
"""What may stand for a sweep: a study's file name or database URL, an open study, or the sweep itself."""


def sweep_of(
    source: Source, workload: str | None = None, state: EnergyState | None = None, granularity: Granularity | None = None
) -> Sweep:
    """The sweep of a workload.

    Args:
        source: where it is.
        workload: its name; may be left out where the study holds only one.
        state: that its energies were measured in; by default steady power.
        granularity: that a plan is wanted of: measurements by it if there are any, otherwise finer ones.

    Raises:
        BadInputError: there is no such workload, or there are several and none is named.
        StudyError: the study cannot be read.
    """
    if not isinstance(source, Sweep):
        return open_study(source).read(workload, state, granularity, finer=True)
    if workload not in (None, source.workload):
        raise BadInputError(
            f"`workload` '{workload}': the sweep is of workload '{source.workload}'; leave it out or read another"
        )
    return source


def _unfinished(workload: WorkloadKey, kernels: tuple[Kernel, ...], kernel_index: NDArray[np.int64]) -> str:
    missing = [kernel.name for index, kernel in enumerate(kernels) if index not in set(kernel_index.tolist())]
    return (
        f"the sweep of workload {quoted(str(workload))} has not measured {len(missing)} of its kernels yet, first "
        f"{quoted(missing[0])}; resume it: run 'wastenot kernel sweep' again with the same arguments"
    )


def _check_device(held: str, device: str, label: str) -> None:
    """Refuse to mix numbers of two cards in one study."""
    if held not in (device, catalog.NO_DEVICE):
        raise BadInputError(
            f"{label}: device: holds measurements of {quoted(held)}, not of {quoted(device)}; name another study"
        )


def _check_origin(history: tuple[ImportSummary, ...], workload: str, origin: Origin, label: str) -> None:
    """Refuse to mix numbers of different origin in one workload."""
    if origin != history[0].origin:
        raise BadInputError(
            f"{label}: origin: the rows of workload {quoted(workload)} are {history[0].origin}, "
            f"the new ones {origin}; never mix them: use another workload name"
        )


def _check_agreement(sweep: Sweep, sha256: str | None, append: bool, history: tuple[ImportSummary, ...], label: str) -> None:
    _check_origin(history, sweep.workload, sweep.origin, label)
    if append:
        return
    same = next((entry for entry in history if sha256 is not None and entry.sha256 == sha256), None)
    if same is not None:
        raise BadInputError(
            f"{label}: workload {quoted(sweep.workload)} already holds this content (imported from {same.source} "
            f"at {same.imported_at.isoformat()}); nothing to do, or add it again as repeats: --append"
        )
    raise BadInputError(
        f"{label}: workload {quoted(sweep.workload)} has {sum(entry.rows for entry in history)} rows already; "
        "add these with --append, or name another: --workload NAME"
    )
