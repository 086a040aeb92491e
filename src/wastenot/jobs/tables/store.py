"""Jobs that come back, kept in a study: any number of processes and machines run them at once, and learn of each other.

A run begins in one writing transaction, in which what is known is read, the batch size is decided and the run is inserted:
whoever begins next knows of it. While it runs it gives signs of life like whoever measures a workload (see lease.py). A run
whose process has ended, or that has fallen silent, is read as lost; should it be heard of again, it is running again.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from sqlalchemy import ColumnElement, Connection, Row, insert, select, update

from wastenot.core.errors import BadInputError, StudyError, StudyUnreachableError
from wastenot.core.setting import AUTO, Setting
from wastenot.core.suggest import suggestion
from wastenot.jobs.tables import outbox, schema
from wastenot.jobs.tables.records import JobRun, JobTerms, Outcome, Speed
from wastenot.jobs.tables.run_in_flight import MEASURED, SETTING, RunInFlight, RunKey, Used, Writing, keep_run, keep_speeds
from wastenot.jobs.tables.terms import check_same_job, check_terms, terms_of, terms_row
from wastenot.study import catalog
from wastenot.study.database import DAMAGED
from wastenot.study.lease import is_gone, moment, this_process
from wastenot.study.store import Study
from wastenot.study.sweep import quoted

if TYPE_CHECKING:
    from wastenot.jobs.plan.decision import Decision


@dataclass(frozen=True, slots=True)
class StoredJob:
    """All that a study holds of a job.

    Attributes:
        terms: as asked for last on the device.
        device: that the terms are for.
        runs: all, on whatever device, in the order in which they began.
        speeds: of each device, batch size and setting, as measured last.
        devices: that it has run on, the latest first.
        why: of each run, why its batch size was chosen.
    """

    terms: JobTerms
    device: str
    runs: tuple[JobRun, ...] = ()
    speeds: tuple[Speed, ...] = ()
    devices: tuple[str, ...] = ()
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobStore:
    """The jobs of a study.

    Args:
        study: an open one; let it be made (``create``) to begin runs in a new one.
    """

    study: Study

    def names(self) -> tuple[str, ...]:
        """Of all jobs, in the order in which they came.

        Raises:
            StudyError: the study cannot be read.
        """
        with self.study.database.reading() as connection:
            return self._names(connection)

    def read(self, name: str, device: str | None = None) -> StoredJob:
        """All that is known of a job.

        Args:
            name: of the job.
            device: whose terms are wanted; by default, and where it has not run on that one, the one it ran on last.

        Raises:
            BadInputError: there is no such job.
            StudyError: the study cannot be read.
        """
        with self.study.database.reading() as connection:
            found = self._find(connection, name)
            if found is None:
                names = self._names(connection)
                if not names:
                    raise BadInputError(
                        f"{self.study}: holds no jobs; a program adds one by running: with wn.job({quoted(name)}, "
                        f"study={quoted(str(self.study))}, ...) as run"
                    )
                raise BadInputError(f"{self.study}: there is no job {quoted(name)}; {suggestion(name, names)}")
            return self._read(connection, found, device)

    def begin(
        self,
        terms: JobTerms,
        device: str,
        choose: Callable[[StoredJob], Decision],
        *,
        used: Callable[[], Used] | None = None,
        seats: str | None = None,
    ) -> RunInFlight:
        """Begin a run: read what is known, decide, and insert the run, while no one else can.

        Args:
            terms: of the job; those that may change are kept for the device.
            device: label of the device.
            choose: decides, given all that is known; takes milliseconds, as others wait.
            used: tells what the run has used so far; by default the time since this call, and no energy.
            seats: what the processes of this run have in common, by which the others find it (:meth:`find`).

        Raises:
            BadInputError: the terms make no sense, or are another job's.
            StudyError: the study cannot be written.
        """
        check_terms(terms)
        token, began_s = uuid.uuid4().hex, time.monotonic()
        with self.study.database.writing() as connection:
            catalog.prepare(connection, str(self.study), catalog.NO_DEVICE)
            found = self._find(connection, terms.name)
            if found is None:
                goal = {"name": terms.name, "target": terms.target, "higher_is_better": terms.higher_is_better}
                job_id = catalog.inserted_id(connection, schema.jobs, **goal, created_at=catalog.utc_now())
            else:
                check_same_job(terms, found.target, bool(found.higher_is_better), str(self.study))
                job_id = found.id
            _keep_terms(connection, job_id, device, terms)
            stored = self._read(connection, self._find(connection, terms.name), device)
            decision = choose(stored)
            number = 1 + max((run.number for run in stored.runs), default=0)
            run = JobRun(number, decision.batch_size, device, "running", 0, 0.0, None, AUTO, None, time.time())
            values = {"number": number, "batch_size": run.batch_size, "device": device, "outcome": "running", "epochs": 0}
            values |= {"time_s": 0.0, "started_unix_s": run.started_unix_s, "why": decision.why, "seats": seats}
            values |= this_process() | {"token": token, "heard_at": moment(connection)}
            connection.execute(insert(schema.job_runs).values(job_id=job_id, **values))
        return RunInFlight(
            self.again, RunKey(job_id, token), stored, decision, run, used or (lambda: (time.monotonic() - began_s, None))
        )

    def find(self, name: str, seats: str, *, after: int = 0, since_unix_s: float = 0.0) -> tuple[JobRun, str] | None:
        """The first run that began with such seats, and why its batch size was chosen; ``None`` while there is none.

        Args:
            name: of the job.
            seats: as :meth:`begin` was told.
            after: number of the run before which none is wanted.
            since_unix_s: begin before which none is wanted.

        Raises:
            StudyError: the study cannot be read.
        """
        path = self.study.path
        if path is not None and (not path.exists() or path.stat().st_size == 0):
            return None
        runs = schema.job_runs
        with self.study.database.reading() as connection:
            if catalog.read_header(connection, str(self.study)) is None:
                return None
            query = select(runs).where(_of_job(name), runs.c.seats == seats)
            query = query.where(runs.c.number > after, runs.c.started_unix_s >= since_unix_s)
            row = connection.execute(query.order_by(runs.c.number).limit(1)).one_or_none()
            return None if row is None else (self._run(row, moment(connection)), row.why)

    def run(self, name: str, number: int) -> JobRun:
        """One run of a job, as it is now.

        Raises:
            BadInputError: there is none.
            StudyError: the study cannot be read.
        """
        run = self._run_now(name, number)
        # Lost, or ended between the look at its record and that at its process: a second look tells.
        return self._run_now(name, number) if run.outcome == "lost" else run

    def _run_now(self, name: str, number: int) -> JobRun:
        runs = schema.job_runs
        with self.study.database.reading() as connection:
            row = connection.execute(select(runs).where(_of_job(name), runs.c.number == number)).one_or_none()
            if row is None:
                raise BadInputError(f"{self.study}: job {quoted(name)} has no run {number}")
            return self._run(row, moment(connection))

    def report(self, name: str, number: int, outcome: Outcome) -> None:
        """Say what became of a run that another process has begun, unless that is known already.

        Raises:
            StudyError: the study cannot be written.
        """
        runs = schema.job_runs
        with self.again() as connection:
            mine = _of_job(name) & (runs.c.number == number) & (runs.c.outcome == "running")
            connection.execute(update(runs).where(mine).values(outcome=outcome, heard_at=moment(connection)))

    def deliver(self) -> int:
        """Store what this machine has kept of runs that ended while the study did not answer; how many those were.

        One that the study does not know, or cannot take, is put aside.

        Raises:
            StudyUnreachableError: it still does not answer; what is not stored stays.
        """
        number = 0
        for each in outbox.kept(str(self.study)):
            try:
                with self.again() as connection:
                    known = keep_run(connection, each.job_id, each.run, token=each.token)
                    if known:
                        keep_speeds(connection, each.job_id, each.speeds)
            except StudyUnreachableError:
                raise
            except StudyError:
                known = False
            if known:
                each.path.unlink(missing_ok=True)
                number += 1
            else:
                outbox.put_aside(each.path)
        return number

    def forget_memory(self, name: str, device: str | None = None) -> tuple[int, ...]:
        """Let batch sizes be tried again that did not fit into memory: another process may have filled it at the time.

        Their runs stay, as failed ones, which cost but say nothing of the batch size.

        Args:
            name: of the job.
            device: whose memory it was; by default that of the device that the job ran on last.

        Returns:
            The batch sizes that did not fit.

        Raises:
            BadInputError: there is no such job, or it has not run on the device.
            StudyError: the study cannot be written.
        """
        stored = self.read(name, device)
        if device is not None and device not in stored.devices:
            raise BadInputError(f"`device` {device}: the job has not run there; {suggestion(device, stored.devices)}")
        where = stored.device
        sizes = {run.batch_size for run in stored.runs if run.outcome == "no memory" and run.device == where}
        if sizes:
            runs = schema.job_runs
            with self.again() as connection:
                these = _of_job(name) & (runs.c.device == where) & (runs.c.outcome == "no memory")
                connection.execute(update(runs).where(these).values(outcome="failed"))
        return tuple(sorted(sizes))

    def used_elsewhere(self, name: str, number: int, machine: str, energy_j: float) -> None:
        """Say what a run has used so far on another machine than the one that began it; it counts with the rest.

        Args:
            name: of the job.
            number: of the run.
            machine: its name.
            energy_j: that its GPUs have used.

        Raises:
            StudyError: the study cannot be written.
        """
        table, jobs = schema.job_energy_elsewhere, schema.jobs
        with self.again() as connection:
            job_id = connection.scalar(select(jobs.c.id).where(jobs.c.name == name))
            mine = (table.c.job_id == job_id) & (table.c.number == number) & (table.c.machine == machine)
            if connection.execute(update(table).where(mine).values(energy_j=energy_j)).rowcount == 0:
                connection.execute(insert(table).values(job_id=job_id, number=number, machine=machine, energy_j=energy_j))

    # ---- inside ----------------------------------------------------------------------------------------------

    @property
    def again(self) -> Writing:
        """Begins a writing transaction on what is there: a file that has gone is not made again."""
        return replace(self.study.database, create=False).writing

    def _names(self, connection: Connection) -> tuple[str, ...]:
        there = catalog.read_header(connection, str(self.study)) is not None
        return tuple(connection.scalars(select(schema.jobs.c.name).order_by(schema.jobs.c.id))) if there else ()

    def _find(self, connection: Connection, name: str) -> Row[Any] | None:
        if catalog.read_header(connection, str(self.study)) is None:
            return None
        return connection.execute(select(schema.jobs).where(schema.jobs.c.name == name)).one_or_none()

    def _read(self, connection: Connection, job: Row[Any] | None, device: str | None) -> StoredJob:
        assert job is not None
        now = moment(connection)
        runs, speeds, asked = schema.job_runs, schema.job_speeds, schema.job_terms
        rows = connection.execute(select(runs).where(runs.c.job_id == job.id).order_by(runs.c.number)).all()
        held = connection.execute(select(asked).where(asked.c.job_id == job.id).order_by(asked.c.asked_at)).all()
        elsewhere = schema.job_energy_elsewhere
        others_j: dict[int, float] = defaultdict(float)
        for number, energy_j in connection.execute(
            select(elsewhere.c.number, elsewhere.c.energy_j).where(elsewhere.c.job_id == job.id)
        ):
            others_j[number] += energy_j
        latest = {row.device: index for index, row in enumerate(rows)}
        devices = tuple(sorted(latest, key=lambda each: -latest[each]))
        by_device = {row.device: row for row in held}
        wanted = device if device in by_device else next((each for each in devices if each in by_device), None)
        try:
            if wanted is None:
                raise ValueError("a job without terms")
            return StoredJob(
                terms_of(by_device[wanted], job.name, job.target, job.higher_is_better),
                wanted,
                tuple(self._run(row, now, others_j.get(row.number, 0.0)) for row in rows),
                tuple(
                    Speed(row.device, row.batch_size, _setting(row), *(getattr(row, name) for name in MEASURED))
                    for row in connection.execute(select(speeds).where(speeds.c.job_id == job.id).order_by(speeds.c.id))
                ),
                devices,
                tuple(row.why for row in rows),
            )
        except (BadInputError, ValueError, TypeError, AttributeError) as error:
            raise StudyError(f"{self.study}: {DAMAGED} ({error})") from error

    def _run(self, row: Row[Any], now: str, elsewhere_j: float = 0.0) -> JobRun:
        if row.outcome not in get_args(Outcome):
            raise ValueError(f"a run that has {row.outcome!r}")
        gone = row.outcome == "running" and is_gone(row, now)
        kept = {name: getattr(row, name) for name in ("number", "batch_size", "device", "epochs", "time_s", "metric")}
        return JobRun(
            **kept,
            outcome="lost" if gone else row.outcome,
            energy_j=None if row.energy_j is None else row.energy_j + elsewhere_j,
            setting=_setting(row),
            started_unix_s=row.started_unix_s,
        )


def _of_job(name: str) -> ColumnElement[bool]:
    """Runs of a job."""
    return schema.job_runs.c.job_id == select(schema.jobs.c.id).where(schema.jobs.c.name == name).scalar_subquery()


def _setting(row: Row[Any]) -> Setting:
    return Setting(*(getattr(row, name) for name in SETTING))


def _keep_terms(connection: Connection, job_id: int, device: str, terms: JobTerms) -> None:
    table = schema.job_terms
    values = terms_row(terms) | {"asked_at": moment(connection)}
    mine = (table.c.job_id == job_id) & (table.c.device == device)
    if connection.execute(update(table).where(mine).values(**values)).rowcount == 0:
        connection.execute(insert(table).values(job_id=job_id, device=device, **values))
