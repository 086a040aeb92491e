"""Keeping measurements as they are made, each in a transaction of its own: a kill loses at most the one in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sqlalchemy import Connection, insert, inspect, select, update

from wastenot.setting import Setting
from wastenot.study.schema import imports, kernels, measurements, trial_notes, trials

_NUMBERS = (
    "time_s", "energy_j", "time_se_s", "energy_se_j", "effective_core_mhz", "effective_memory_mhz", "calls", "temperature_c",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time and energy of one call of a kernel at one setting, and how they came about. ``None`` is unknown.

    Attributes:
        kernel: what was run: a kernel, or a pass or an iteration measured as one.
        setting: requested.
        time_s: of one call.
        time_se_s: its standard error.
        energy_j: of one call.
        energy_se_j: its standard error.
        effective_core_mhz: core clock in effect, the median over the window.
        effective_memory_mhz: memory clock in effect, the median over the window.
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


class Recorder:
    """Appends trials to a study; get one from :meth:`wastenot.study.store.Study.recording`.

    Args:
        transaction: begins a writing transaction.
        import_id: that the trials belong to.
        kernel_ids: the id in the store of each kernel.
        done: how often each kernel was measured at each setting before.
    """

    def __init__(
        self,
        transaction: Callable[[], AbstractContextManager[Connection]],
        import_id: int,
        kernel_ids: Mapping[str, int],
        done: Mapping[tuple[str, Setting], int],
    ) -> None:
        self._transaction = transaction
        self._import_id = import_id
        self._kernel_ids = kernel_ids
        self._rows = 0
        self.done: Counter[tuple[str, Setting]] = Counter(done)

    def append(self, trial: Measurement) -> None:
        """Keep a trial; when this returns, it is on disk.

        Raises:
            StudyError: the study cannot be written; it is as it was.
        """
        key = {"import_id": self._import_id, "position": self._rows}
        setting = trial.setting
        row = {
            "kernel_id": self._kernel_ids[trial.kernel],
            "core_mhz": setting.core_mhz,
            "memory_mhz": setting.memory_mhz,
            "power_limit_w": setting.power_limit_w,
            "time_s": trial.time_s,
            "energy_j": trial.energy_j,
            "time_se_s": trial.time_se_s,
            "energy_se_j": trial.energy_se_j,
            "effective_core_mhz": trial.effective_core_mhz,
            "effective_memory_mhz": trial.effective_memory_mhz,
            "calls": trial.calls,
            "temperature_c": trial.temperature_c,
        }
        about = {
            "window_s": trial.window_s,
            "throttled_share": trial.throttled_share,
            "stopped": trial.stopped,
            "flags": "; ".join(trial.flags),
        }
        notes = {"memory_power_w": trial.memory_power_w, "how": trial.how}
        with self._transaction() as connection:
            connection.execute(insert(measurements), key | row)
            connection.execute(insert(trials), key | about)
            connection.execute(insert(trial_notes), key | notes)
            connection.execute(update(imports).where(imports.c.id == self._import_id).values(rows=self._rows + 1))
        self._rows += 1
        self.done[trial.kernel, setting] += 1


def read_trials(connection: Connection, workload_id: int) -> tuple[Measurement, ...]:
    """The trials of a workload, in the order they were made."""
    about = [trials.c.window_s, trials.c.throttled_share, trials.c.stopped, trials.c.flags]
    same = (trials.c.import_id == measurements.c.import_id) & (trials.c.position == measurements.c.position)
    whole = measurements.join(kernels, kernels.c.id == measurements.c.kernel_id).join(trials, same)
    noted = inspect(connection).has_table(trial_notes.name)  # studies of before the table have none
    if noted:
        noted_same = (trial_notes.c.import_id == trials.c.import_id) & (trial_notes.c.position == trials.c.position)
        whole = whole.join(trial_notes, noted_same, isouter=True)
        about += [trial_notes.c.memory_power_w, trial_notes.c.how]
    numbers = [measurements.c[name] for name in _NUMBERS]
    asked = [measurements.c.core_mhz, measurements.c.memory_mhz, measurements.c.power_limit_w]
    query = (
        select(kernels.c.name, *asked, *numbers, *about)
        .select_from(whole)
        .where(kernels.c.workload_id == workload_id)
        .order_by(measurements.c.import_id, measurements.c.position)
    )
    found = []
    for name, core, memory, limit, *rest in connection.execute(query).tuples():
        values = dict(zip(_NUMBERS, rest, strict=False))
        window_s, throttled, stopped, flags, *notes = rest[len(_NUMBERS) :]
        memory_power_w, how = notes if notes else (None, "")
        found.append(
            Measurement(
                kernel=name,
                setting=Setting(core, memory, limit),
                **values,
                window_s=window_s,
                throttled_share=throttled,
                memory_power_w=memory_power_w,
                how=how or "",
                stopped=stopped,
                flags=tuple(flags.split("; ")) if flags else (),
            )
        )
    return tuple(found)
