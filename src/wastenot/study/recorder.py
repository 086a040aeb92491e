"""Measurements as they are made, stored in transactions: a kill loses at most those in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields

from sqlalchemy import Connection, insert, select, update

from wastenot.core.errors import StudyError
from wastenot.core.setting import Setting
from wastenot.study.coverage import Point
from wastenot.study.lease import Lease
from wastenot.study.schema import imports, kernels, measurements, trials
from wastenot.study.sweep import NUMBERS, SETTING
from wastenot.study.sweep_log import add_excluded, finish_sweep


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time and energy of one call of a kernel at one setting, and how they came about. ``None`` is unknown.

    Attributes:
        kernel: what was run: a kernel, or a pass or an iteration measured as one.
        setting: requested.
        effective_core_mhz: in effect over the window: the mean by counting cycles where the device can, as ``how`` says,
            otherwise the median of its readings.
        effective_memory_mhz: in effect, the median over the window.
        calls: whole calls measured.
        temperature_c: of the GPU, mean of begin and end.
        window_s: for how long it was measured.
        throttled_share: fraction of that time in which a limit held the clocks down.
        memory_power_w: mean power of the memory alone.
        how: the way the kernel was run, where that is worth saying.
        stopped: why the measurement ended.
        flags: warnings, such as ``core clock not reached``.
    """

    kernel: str
    setting: Setting
    time_s: float
    time_se_s: float
    energy_j: float
    energy_se_j: float
    effective_core_mhz: float | None
    effective_memory_mhz: float | None
    calls: int
    temperature_c: float | None
    window_s: float
    throttled_share: float | None
    memory_power_w: float | None
    how: str
    stopped: str
    flags: tuple[str, ...]


_NUMBERS = tuple(column.name for column in NUMBERS if column.name not in SETTING)
_HOW = tuple(each.name for each in fields(Measurement) if each.name not in {"kernel", "setting", "flags", *_NUMBERS})
"""How measurements came about: columns of a table of their own."""


class Recorder:
    """Appends measurements to a study; get one from :meth:`wastenot.study.store.Study.recording`.

    Args:
        transaction: begins a writing transaction.
        label: how messages name the workload.
        lease: that allows this process to measure the workload.
        import_id: that the measurements belong to.
        sweep_id: the record of the sweep that makes them; ``None`` where it keeps none.
        kernel_ids: the id in the store of each kernel.
        done: how often each kernel was measured at each setting before.
    """

    def __init__(
        self,
        transaction: Callable[[], AbstractContextManager[Connection]],
        label: str,
        lease: Lease,
        import_id: int,
        sweep_id: int | None,
        kernel_ids: Mapping[str, int],
        done: Mapping[Point, int],
    ) -> None:
        self._transaction = transaction
        self._label = label
        self._lease = lease
        self.import_id = import_id
        self._sweep_id = sweep_id
        self.kernel_ids = kernel_ids
        self._rows = 0
        self.done: Counter[Point] = Counter(done)

    def append(self, *made: Measurement) -> None:
        """Store measurements, all in one transaction; when this returns, they are on disk.

        Raises:
            StudyError: the study cannot be written, or another process has taken over; the study is as it was.
        """
        with self.writing() as connection:
            insert_measurements(connection, self.import_id, self._rows, [(self.kernel_ids[one.kernel], one) for one in made])
            rows = self._rows + len(made)
            connection.execute(update(imports).where(imports.c.id == self.import_id).values(rows=rows))
        self._rows = rows
        self.done.update((one.kernel, one.setting) for one in made)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction of the process that holds the lease.

        Raises:
            StudyError: the study cannot be written, or another process has taken over; the study is as it was.
        """
        with self._transaction() as connection:
            if not self._lease.renew(connection):
                raise StudyError(
                    f"{self._label}: another process took over its measurement, since this one was silent "
                    "for too long; earlier measurements are kept"
                )
            yield connection

    def exclude(self, kernel: str, setting: Setting) -> None:
        """Record that a point turned out to be one that the device cannot run.

        Raises:
            StudyError: the study cannot be written.
        """
        if self._sweep_id is not None:
            with self._transaction() as connection:
                add_excluded(connection, self._sweep_id, [(kernel, setting)])

    def finish(self) -> None:
        """Record that the sweep came to its end.

        Raises:
            StudyError: the study cannot be written.
        """
        if self._sweep_id is not None:
            with self._transaction() as connection:
                finish_sweep(connection, self._sweep_id)


def insert_measurements(connection: Connection, import_id: int, first: int, made: Sequence[tuple[int, Measurement]]) -> None:
    """Store measurements and how they came about.

    Args:
        connection: in a writing transaction.
        import_id: that they belong to.
        first: position of the first of them among those of its import; the others follow.
        made: the store's id of each one's kernel, and the measurement.
    """
    rows, hows = [], []
    for position, (kernel_id, one) in enumerate(made, first):
        key = {"import_id": import_id, "position": position}
        row = dict(zip(SETTING, one.setting.numbers, strict=True)) | {name: getattr(one, name) for name in _NUMBERS}
        rows.append(key | {"kernel_id": kernel_id} | row)
        hows.append(key | {name: getattr(one, name) for name in _HOW} | {"flags": "; ".join(one.flags)})
    connection.execute(insert(measurements), rows)
    connection.execute(insert(trials), hows)


def read_measurements(connection: Connection, workload_id: int) -> tuple[Measurement, ...]:
    """The measurements of a workload that wastenot made itself, in the order they were made."""
    names = (*SETTING, *_NUMBERS)
    same = (trials.c.import_id == measurements.c.import_id) & (trials.c.position == measurements.c.position)
    query = (
        select(kernels.c.name, *(measurements.c[name] for name in names), *(trials.c[name] for name in _HOW), trials.c.flags)
        .select_from(measurements.join(kernels, kernels.c.id == measurements.c.kernel_id).join(trials, same))
        .where(kernels.c.workload_id == workload_id)
        .order_by(measurements.c.import_id, measurements.c.position)
    )
    found = []
    for kernel, *values, flags in connection.execute(query):
        of = dict(zip((*names, *_HOW), values, strict=True))
        setting = Setting.of_numbers(*(of.pop(name) for name in SETTING))
        found.append(Measurement(kernel=kernel, setting=setting, flags=tuple(flags.split("; ")) if flags else (), **of))
    return tuple(found)
