"""A sweep in memory: what each kernel of a workload costs at each setting, and the rules that every sweep keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.origin import ORIGINS, Origin
from wastenot.core.setting import Setting
from wastenot.study.coverage import RecordedSweep
from wastenot.workloads.identity import ENERGY_STATES, GRANULARITIES, EnergyState, Granularity, ModelRun, WorkloadKey

LARGEST_COUNT = 2**53
"""The largest count that a float64, and so every reader of our files, holds exactly."""

_LONGEST_NAME = 255
"""Characters in the name of a workload or a device: what every database can index."""


class Range(Enum):
    """The values that a number may take; the text of each completes "must be ..."."""

    POSITIVE = "a finite number above 0"
    NOT_NEGATIVE = "a finite number, 0 or more"
    FINITE = "a finite number"
    CODE = "a whole number from 0 to 255"

    def allows(self, values: FloatArray) -> NDArray[np.bool_]:
        """Which values are inside; NaN, which stands for an empty field, is not."""
        inside = np.isfinite(values)
        if self is Range.POSITIVE:
            return np.asarray(inside & (values > 0))
        if self is Range.NOT_NEGATIVE:
            return np.asarray(inside & (values >= 0))
        if self is Range.CODE:
            return np.asarray(inside & (values >= 0) & (values <= 255) & (values == np.floor(values)))
        return inside


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A column of numbers; an attribute of ``Sweep`` has the same name.

    Attributes:
        empty: what an empty field means; ``None`` where a field must not be empty.
    """

    name: str
    range: Range
    empty: str | None


NUMBERS = (
    NumberColumn("core_mhz", Range.POSITIVE, "auto"),
    NumberColumn("memory_mhz", Range.POSITIVE, "auto"),
    NumberColumn("time_s", Range.POSITIVE, None),
    NumberColumn("energy_j", Range.POSITIVE, None),
    NumberColumn("power_limit_w", Range.POSITIVE, "auto"),
    NumberColumn("time_se_s", Range.NOT_NEGATIVE, "absent"),
    NumberColumn("energy_se_j", Range.NOT_NEGATIVE, "absent"),
    NumberColumn("effective_core_mhz", Range.POSITIVE, "absent"),
    NumberColumn("effective_memory_mhz", Range.POSITIVE, "absent"),
    NumberColumn("calls", Range.POSITIVE, "absent"),
    NumberColumn("temperature_c", Range.FINITE, "absent"),
    NumberColumn("profile", Range.CODE, "auto"),
)

SETTING = ("core_mhz", "memory_mhz", "power_limit_w", "profile")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One GPU operation with fixed shapes.

    Attributes:
        name: unique within a workload.
        count: how often it runs in one iteration.
        pass_name: forward, loss, backward, ...; ``None`` where the data do not say.
        block: the loop it belongs to, such as ``layer``; ``None`` where the data do not say.
    """

    name: str
    count: int
    pass_name: str | None = None
    block: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CurveErrors:
    """Errors that the rows of one kernel have in common where they are points of one curve, measured at natural clocks.

    Attributes:
        core_mhz: of these rows, ascending; shape (rows,).
        log_time_cov: covariance of the errors of the logarithm of time, shape (rows, rows).
        log_power_cov: the same of power.
    """

    core_mhz: FloatArray
    log_time_cov: FloatArray
    log_power_cov: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """Measurements of the kernels of one workload on one device, in the order they were read.

    All arrays have shape (rows,). In the clocks, the power limit and the profile NaN means auto; in the other optional
    columns it means absent. Times and energies are for ONE call.

    Attributes:
        kernels: in order of execution.
        kernel_index: the kernel of each row, an index into ``kernels``.
        core_mhz: requested, as are ``memory_mhz`` and ``power_limit_w``.
        time_se_s: standard error of ``time_s``, as ``energy_se_j`` is of ``energy_j``.
        effective_core_mhz: that was in effect, as was ``effective_memory_mhz``.
        calls: how many calls the row averages.
        temperature_c: of the GPU.
        profile: number of the workload power profile, see :mod:`wastenot.core.profiles`; all auto where left out.
        origin: whether the numbers were measured, simulated, synthetic or forecast.
        state: that the energies were taken in.
        granularity: what was measured as one, and is a "kernel" here.
        run: the model that the workload is of, and how that is run; ``None`` where not known.
        captured_on: the kind of device that the workload was captured on, such as ``cuda`` or ``cpu``; ``None`` where it was
            not captured, or not known.
        recorded: the sweeps that measured it, as far as the study remembers them.
        curve_errors: at natural clocks, errors that the rows of each kernel have in common, by its name.
        unreached: names of kernels of the workload that were not measured yet and are not among ``kernels``.
        latency: the document ``wastenot.latency/1`` of the device, where its study has one.
    """

    kernels: tuple[Kernel, ...]
    kernel_index: NDArray[np.int64]
    core_mhz: FloatArray
    memory_mhz: FloatArray
    power_limit_w: FloatArray
    time_s: FloatArray
    energy_j: FloatArray
    time_se_s: FloatArray
    energy_se_j: FloatArray
    effective_core_mhz: FloatArray
    effective_memory_mhz: FloatArray
    calls: FloatArray
    temperature_c: FloatArray
    profile: FloatArray = field(kw_only=True, default_factory=lambda: np.empty(0))
    workload: str = field(kw_only=True)
    device: str = field(kw_only=True)
    origin: Origin = field(kw_only=True, default="measured")
    state: EnergyState = field(kw_only=True, default="ssp")
    granularity: Granularity = field(kw_only=True, default="kernel")
    run: ModelRun | None = field(kw_only=True, default=None)
    captured_on: str | None = field(kw_only=True, default=None)
    recorded: tuple[RecordedSweep, ...] = field(kw_only=True, default=())
    curve_errors: Mapping[str, CurveErrors] = field(kw_only=True, default_factory=dict)
    unreached: tuple[str, ...] = field(kw_only=True, default=())
    latency: str | None = field(kw_only=True, default=None)

    def __post_init__(self) -> None:
        if not len(self.profile):
            object.__setattr__(self, "profile", np.full(len(self.time_s), np.nan))

    def __repr__(self) -> str:
        return f"Sweep({str(self.key)!r} on {self.device!r}, {self.origin}: {len(self.kernels)} kernels, {len(self):,} rows)"

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def key(self) -> WorkloadKey:
        """What tells these measurements from others in a study."""
        return WorkloadKey(self.workload, self.state, self.granularity)

    def setting(self, row: int) -> Setting:
        """The requested setting of one row."""
        return Setting.of_numbers(*(getattr(self, name)[row] for name in SETTING))

    @property
    def automatic(self) -> NDArray[np.bool_]:
        """Which rows have everything at auto; shape (rows,)."""
        return np.asarray(np.logical_and.reduce([np.isnan(getattr(self, name)) for name in SETTING]))

    def default_memory_mhz(self) -> float | None:
        """The memory clock in effect at the default clocks, if it was recorded and the same for all kernels."""
        clocks = np.unique(self.effective_memory_mhz[self.automatic])
        return _known(clocks[0]) if len(clocks) == 1 and np.isfinite(clocks[0]) else None


def in_order_of_execution(sweep: Sweep) -> Sweep:
    """The sweep itself where its kernels appear first in order of execution, else its rows by kernel."""
    _, first = np.unique(sweep.kernel_index, return_index=True)
    if bool((np.diff(first) > 0).all()):
        return sweep
    return rows_of(sweep, np.argsort(sweep.kernel_index, kind="stable"))


def rows_of(sweep: Sweep, chosen: NDArray[np.intp]) -> Sweep:
    """Some rows of a sweep, by their indices, in that order."""
    columns = {
        column.name: getattr(sweep, column.name)[chosen]
        for column in fields(sweep)
        if isinstance(getattr(sweep, column.name), np.ndarray)
    }
    return replace(sweep, **columns)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in a field of one row (an index among the rows that hold data): what is wrong and how to fix it."""

    row: int
    field: str
    what: str


def check_sweep(sweep: Sweep, *, with_baseline: Collection[str] = ()) -> None:
    """Refuse a sweep that breaks a rule of the sweep files, which could not be kept or read again.

    Args:
        sweep: what to check.
        with_baseline: names of kernels whose baseline is known from elsewhere.

    Raises:
        BadInputError: names the first rule that is broken, and the kernel or the row.
    """
    where = f"sweep of {quoted(sweep.workload)}"
    for what, name in (("workload", sweep.workload), ("device", sweep.device)):
        _check_text(where, what, name)
        if len(name) > _LONGEST_NAME:
            raise BadInputError(f"{where}: {what}: has {len(name)} characters; {_LONGEST_NAME} are allowed")
    if sweep.origin not in ORIGINS:
        raise BadInputError(f"{where}: origin: {quoted(sweep.origin)} must be one of {', '.join(ORIGINS)}")
    for what, value, known in (("state", sweep.state, ENERGY_STATES), ("granularity", sweep.granularity, GRANULARITIES)):
        if value not in known:
            raise BadInputError(f"{where}: {what}: {quoted(value)} must be one of {', '.join(known)}")
    _check_kernels(sweep, where)
    _check_rows(sweep, where)
    numbers = {column.name: getattr(sweep, column.name) for column in NUMBERS}
    for kernel in without_baseline(numbers, sweep.kernel_index, len(sweep.kernels)):
        name = sweep.kernels[kernel].name
        if name not in with_baseline:
            raise BadInputError(
                f"{where}: kernel: {quoted(name)} has no row with all settings auto; add its run at auto, the baseline"
            )


def _check_kernels(sweep: Sweep, where: str) -> None:
    names: set[str] = set()
    for kernel in sweep.kernels:
        _check_text(where, "kernel", kernel.name)
        for what, label in (("pass", kernel.pass_name), ("block", kernel.block)):
            if label is not None:
                _check_text(where, what, label)
        if not 1 <= kernel.count <= LARGEST_COUNT:
            raise BadInputError(f"{where}: count: of {quoted(kernel.name)} is {kernel.count}; must be from 1 to 2**53")
        if kernel.name in names:
            raise BadInputError(f"{where}: kernel: {quoted(kernel.name)} appears twice; give each its own name")
        names.add(kernel.name)


def _check_rows(sweep: Sweep, where: str) -> None:
    rows = len(sweep)
    if not rows:
        raise BadInputError(f"{where}: has no rows; measure or import some")
    for name in ("kernel_index", *(column.name for column in NUMBERS)):
        if np.shape(getattr(sweep, name)) != (rows,):
            raise BadInputError(f"{where}: {name}: must have shape ({rows},), as time_s has")
    if sweep.kernel_index.min() < 0 or sweep.kernel_index.max() >= len(sweep.kernels):
        raise BadInputError(f"{where}: kernel_index: must be from 0 to {len(sweep.kernels) - 1}")
    for column in NUMBERS:
        for fault in number_faults(column, getattr(sweep, column.name)):
            raise BadInputError(f"{where}: row {fault.row + 1}: {fault.field}: {fault.what}")


def _check_text(where: str, what: str, text: str) -> None:
    if not text.strip():
        raise BadInputError(f"{where}: {what}: is empty; give it a name")
    if "\0" in text:
        raise BadInputError(f"{where}: {what}: {quoted(text)} contains a NUL; remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInputError(f"{where}: {what}: {quoted(text)} is not valid Unicode; rename it") from error


def number_faults(column: NumberColumn, values: FloatArray) -> Iterable[Fault]:
    """The first row of a number column that breaks its rule, if one does; ``values`` are NaN where a field is empty."""
    wrong = ~column.range.allows(values)
    if column.empty is not None:
        wrong &= ~np.isnan(values)
    row = first_true(wrong)
    if row is not None:
        value = float(values[row])
        what = "is empty" if np.isnan(value) else f"is {value!r}"
        yield Fault(row, column.name, f"{what}; must be {column.range.value}")


def without_baseline(numbers: dict[str, FloatArray], kernel_index: NDArray[np.int64], kernels: int) -> NDArray[np.int64]:
    """The kernels that have no row with every setting at auto.

    Args:
        numbers: the columns of the setting by name; shape (rows,) each.
        kernel_index: the kernel of each row; shape (rows,).
        kernels: how many there are.

    Returns:
        Indices of kernels, ascending.
    """
    auto = np.logical_and.reduce([np.isnan(numbers[name]) for name in SETTING])
    covered = np.zeros(kernels, dtype=np.bool_)
    covered[kernel_index[auto]] = True
    return np.flatnonzero(~covered)


def first_true(flags: NDArray[np.bool_]) -> int | None:
    """Index of the first true flag, if there is one."""
    row = int(np.argmax(flags))
    return row if flags[row] else None


def quoted(text: str) -> str:
    """A text from a file as a message shows it: quoted, on one line, not longer than a line bears."""
    short = repr(text if len(text) <= 60 else text[:57] + "...")
    return short if len(short) <= 90 else short[:86] + "...'"
