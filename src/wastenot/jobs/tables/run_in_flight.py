"""A run of a job that this process has begun: what it tells the study, and how it ends.

    begin ──▶ running ── epoch, epoch, … ──▶ end: reached, stopped, …
                 └── killed, or not heard of for minutes: read as lost

A thread gives its signs of life, with what it has used so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, delete, insert, update

from wastenot.core.setting import Setting
from wastenot.jobs.tables import outbox, schema
from wastenot.jobs.tables.records import JobRun, Outcome, Speed
from wastenot.study.lease import kept_alive, moment

if TYPE_CHECKING:
    from wastenot.jobs.plan.decision import Decision
    from wastenot.jobs.tables.store import StoredJob

SETTING = ("core_mhz", "memory_mhz", "power_limit_w")
MEASURED = ("epoch_time_s", "power_w", "time_error", "power_error")

Writing = Callable[[], AbstractContextManager[Connection]]


OPEN: tuple[Outcome, ...] = ("running", "stopped")  # a program may ignore that it is stopped, and reach its target

Used = tuple[float, float | None]
"""Seconds and joules that a run has used so far; ``None`` joules where nothing measures them."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """Identifies a run in the store: its job, and a token that tells it from every other."""

    job_id: int
    token: str


class RunInFlight:
    """A run that this process has begun; made by :meth:`JobStore.begin`. Left without an end, it counts as lost.

    Args:
        writing: begins a writing transaction on the study that it is kept in.
        key: identifies it there.
        stored: what was known when it began.
        decision: what was decided for it.
        run: as it began.
        used: tells what it has used so far; called from any thread.

    Attributes:
        run: as it was told last.
    """

    def __init__(
        self, writing: Writing, key: RunKey, stored: StoredJob, decision: Decision, run: JobRun, used: Callable[[], Used]
    ) -> None:
        self._writing, self._key, self._used = writing, key, used
        self.stored, self.decision, self.run, self._shown = stored, decision, run, run
        self._alive = ExitStack()
        self._alive.enter_context(kept_alive(self, writing))

    def count(self, metric: float | None = None, setting: Setting | None = None) -> JobRun:
        """Count an epoch; others hear of it by :meth:`save`, once it is decided whether to continue.

        Args:
            metric: after it.
            setting: held now; by default as before.

        Returns:
            The run as it is now.
        """
        time_s, energy_j = self._used_so_far()
        metric = metric if metric is not None and math.isfinite(metric) else None
        held = self.run.setting if setting is None else setting
        now = {"time_s": time_s, "energy_j": energy_j, "metric": metric, "setting": held}
        self.run = replace(self.run, epochs=self.run.epochs + 1, **now)  # type: ignore[arg-type]
        return self.run

    def save(self, *, later: bool = False, speeds: Iterable[Speed] = ()) -> None:
        """Store what was counted.

        Args:
            later: with the next sign of life.
            speeds: how fast the job runs, in place of what was known of the same batch size and setting; unless that is
                later.

        Raises:
            StudyError: the study cannot be written.
        """
        self._shown = self.run
        if later:
            return
        with self._writing() as connection:
            self.renew(connection)
            keep_speeds(connection, self._key.job_id, speeds)

    def end(self, outcome: Outcome, *, speeds: Iterable[Speed] = ()) -> JobRun:
        """Store what became of the run.

        Args:
            outcome: of it; one that was stopped may still reach its target.
            speeds: to store with it, as by :meth:`save`.

        Returns:
            The run as it ended.

        Raises:
            StudyError: the study cannot be written; it may be tried again.
        """
        if self.run.outcome in OPEN:
            time_s, energy_j = self._used_so_far()
            self.run = replace(self.run, outcome=outcome, time_s=time_s, energy_j=energy_j)
        with self._writing() as connection:
            self._write(connection, self.run, OPEN)
            keep_speeds(connection, self._key.job_id, speeds)
        self.abandon()
        return self.run

    def post(self, study: str, *, speeds: Iterable[Speed] = ()) -> Path:
        """Keep what became of the run on this machine, until the study answers (:meth:`JobStore.deliver`).

        Args:
            study: by its label.
            speeds: as for :meth:`end`, which has been tried before.

        Returns:
            The file it is kept in.

        Raises:
            BadInputError: it cannot be written.
        """
        return outbox.keep(study, self._key.job_id, self._key.token, self.run, tuple(speeds))

    def abandon(self) -> None:
        """Give no more signs of life."""
        self._alive.close()

    # ---- as lease.py keeps it alive --------------------------------------------------------------------------

    @property
    def token(self) -> str:
        """Tells it from every other."""
        return self._key.token

    def renew(self, connection: Connection) -> bool:
        """Give a sign of life, with what was used so far."""
        run = self._shown
        if self.run.outcome != "running":
            return False
        time_s, energy_j = self._used_so_far()
        return self._write(connection, replace(run, time_s=time_s, energy_j=energy_j), ("running",))

    def release(self, connection: Connection) -> None:
        """Nothing is left to let go."""

    def _used_so_far(self) -> Used:
        """What was told last, where the meter has failed: epochs and signs of life do not depend on it."""
        try:
            return self._used()
        except Exception:
            return self.run.time_s, self.run.energy_j

    def _write(self, connection: Connection, run: JobRun, held: tuple[Outcome, ...]) -> bool:
        return keep_run(connection, self._key.job_id, run, held, token=self._key.token)


def keep_run(connection: Connection, job_id: int, run: JobRun, held: tuple[Outcome, ...] = OPEN, *, token: str) -> bool:
    """Store how a run stands, if it stood at one of some outcomes; whether it did."""
    table = schema.job_runs
    mine = (table.c.job_id == job_id) & (table.c.number == run.number) & (table.c.token == token)
    mine &= table.c.outcome.in_(held)
    values = {name: getattr(run, name) for name in ("outcome", "epochs", "time_s", "energy_j", "metric")}
    values |= setting_values(run.setting) | {"heard_at": moment(connection)}
    return connection.execute(update(table).where(mine).values(**values)).rowcount == 1


def setting_values(setting: Setting) -> dict[str, float | None]:
    """A setting as the tables hold it."""
    return {name: getattr(setting, name) for name in SETTING}


def keep_speeds(connection: Connection, job_id: int, speeds: Iterable[Speed]) -> None:
    """Store how fast a job runs, in place of what was known of the same device, batch size and setting."""
    table = schema.job_speeds
    now = moment(connection)
    for speed in speeds:
        values = {name: getattr(speed, name) for name in ("device", "batch_size", *MEASURED)}
        values |= setting_values(speed.setting)
        same = [table.c[name].is_not_distinct_from(values[name]) for name in ("device", "batch_size", *SETTING)]
        connection.execute(delete(table).where(table.c.job_id == job_id, *same))
        connection.execute(insert(table).values(job_id=job_id, **values, measured_at=now))
