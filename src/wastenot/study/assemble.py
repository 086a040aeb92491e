"""From the columns of a file, whatever its format, to a sweep: the one place where its rules are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wastenot.errors import BadInputError
from wastenot.origin import Origin
from wastenot.study.columns import LARGEST_COUNT, NUMBERS, SETTING, NumberColumn, shown
from wastenot.study.sweep import FloatArray, Kernel, Sweep


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong in one row.

    Attributes:
        row: index among the rows that hold data.
        field: the column.
        what: what is wrong and how to mend it.
    """

    row: int
    field: str
    what: str


class Labels:
    """A column of text, each distinct text kept once, in order of first appearance."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._parts: list[NDArray[np.int64]] = []

    def extend(self, texts: Sequence[str]) -> None:
        """Add the texts of further rows."""
        for text in dict.fromkeys(texts):
            self._codes.setdefault(text, len(self._codes))
        self._parts.append(np.fromiter(map(self._codes.__getitem__, texts), np.int64, len(texts)))

    @property
    def texts(self) -> list[str]:
        """The distinct texts."""
        return list(self._codes)

    @property
    def codes(self) -> NDArray[np.int64]:
        """For each row the index into ``texts``; shape (rows,)."""
        return np.concatenate(self._parts)


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a file, read but not yet checked.

    Attributes:
        kernel: the kernel names.
        numbers: number columns by name, ``count`` among them, NaN where a field is empty; shape (rows,) each.
        labels: the columns ``pass`` and ``block``, where the file has them.
        locate: file and line of a row, worked out only for a message.
        faults: found while the file was read.
    """

    kernel: Labels
    numbers: dict[str, FloatArray]
    labels: dict[str, Labels]
    locate: Callable[[int], str]
    faults: list[Fault] = field(default_factory=list)


def assemble(table: Table, *, workload: str, device: str, origin: Origin) -> Sweep:
    """Check a table and make the sweep of it.

    Args:
        table: at least one row.
        workload: name of the workload.
        device: name of the device.
        origin: where the numbers come from.

    Returns:
        The sweep, its rows in the order of the file.

    Raises:
        BadInputError: names file, line and field of the first faulty row.
    """
    rows = len(table.numbers["time_s"])
    kernel_index = table.kernel.codes
    first_row = np.unique(kernel_index, return_index=True)[1]
    absent = np.full(rows, np.nan)
    numbers = {column.name: table.numbers.get(column.name, absent) for column in NUMBERS}

    faults = list(table.faults)
    faults += _kernel_faults(table.kernel.texts, first_row)
    faults += _count_faults(table.numbers["count"], kernel_index, first_row)
    for column in NUMBERS:
        faults += number_faults(column, numbers[column.name])
    for name, labels in table.labels.items():
        faults += _label_faults(name, labels, kernel_index, first_row)
    if not faults:
        faults += _baseline_faults(numbers, kernel_index, first_row, table.kernel.texts)
    if faults:
        fault = min(faults, key=lambda fault: fault.row)
        raise BadInputError(f"{table.locate(fault.row)}: {fault.field}: {fault.what}")

    kernels = zip(
        table.kernel.texts,
        map(int, table.numbers["count"][first_row]),
        _labels_at(table.labels.get("pass"), first_row),
        _labels_at(table.labels.get("block"), first_row),
        strict=True,
    )
    return Sweep(
        kernels=tuple(Kernel(*kernel) for kernel in kernels),
        kernel_index=kernel_index,
        workload=workload,
        device=device,
        origin=origin,
        **numbers,
    )


def number_faults(column: NumberColumn, values: FloatArray) -> Iterable[Fault]:
    """The first row of a number column that breaks its rule, if one does.

    Args:
        column: the rule.
        values: NaN where a field is empty; shape (rows,).

    Yields:
        At most one fault.
    """
    wrong = ~column.range.allows(values)
    if column.empty is not None:
        wrong &= ~np.isnan(values)
    row = _first(wrong)
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


def _kernel_faults(names: list[str], first_row: NDArray[np.int64]) -> Iterable[Fault]:
    for name, row in zip(names, first_row.tolist(), strict=True):
        if not name.strip():
            yield Fault(row, "kernel", "is empty; every row must name its kernel")


def _count_faults(counts: FloatArray, kernel_index: NDArray[np.int64], first_row: NDArray[np.int64]) -> Iterable[Fault]:
    with np.errstate(invalid="ignore"):
        valid = (counts >= 1) & (counts <= LARGEST_COUNT) & (counts == np.floor(counts))
    row = _first(~valid)
    if row is not None:
        value = float(counts[row])
        what = "is empty" if np.isnan(value) else f"is {value!r}"
        yield Fault(row, "count", f"{what}; must be {COUNT_RULE}")
    expected = counts[first_row][kernel_index]
    row = _first(valid & (expected >= 1) & (counts != expected))
    if row is not None:
        yield Fault(
            row,
            "count",
            f"is {counts[row]:.0f}, but {expected[row]:.0f} in an earlier row of the same kernel; make them agree",
        )


COUNT_RULE = "a whole number from 1 to 2**53: how often the kernel runs in one iteration"


def _label_faults(
    name: str, labels: Labels, kernel_index: NDArray[np.int64], first_row: NDArray[np.int64]
) -> Iterable[Fault]:
    codes = labels.codes
    expected = codes[first_row][kernel_index]
    row = _first(codes != expected)
    if row is not None:
        now, before = (shown(labels.texts[code]) for code in (codes[row], expected[row]))
        yield Fault(
            row,
            name,
            f"is {now}, but {before} in an earlier row of the same kernel; "
            f"a kernel belongs to one {name}: give each its own name",
        )


def _baseline_faults(
    numbers: dict[str, FloatArray],
    kernel_index: NDArray[np.int64],
    first_row: NDArray[np.int64],
    names: list[str],
) -> Iterable[Fault]:
    for kernel in without_baseline(numbers, kernel_index, len(names))[:1]:
        yield Fault(
            int(first_row[kernel]),
            "kernel",
            f"{shown(names[kernel])} has no row with all settings empty; add its run at auto, the baseline",
        )


def _labels_at(labels: Labels | None, rows: NDArray[np.int64]) -> list[str | None]:
    if labels is None:
        return [None] * len(rows)
    texts = labels.texts
    return [texts[code] if texts[code].strip() else None for code in labels.codes[rows]]


def _first(wrong: NDArray[np.bool_]) -> int | None:
    row = int(np.argmax(wrong))
    return row if wrong[row] else None
