"""From the columns of a file, whatever its format, to a sweep: the one place where the rules of sweep files are checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.origin import Origin
from wastenot.study.sweep import (
    LARGEST_COUNT,
    NUMBERS,
    Fault,
    Kernel,
    Sweep,
    first_true,
    number_faults,
    quoted,
    without_baseline,
)
from wastenot.workloads.build import build_shape
from wastenot.workloads.identity import ENERGY_STATES, GRANULARITIES, ModelRun
from wastenot.workloads.named import find_model
from wastenot.workloads.shape import Shape

REQUIRED = ("kernel", "count", "core_mhz", "memory_mhz", "time_s", "energy_j")
_PLAIN = re.compile(r"[^\x00-\x1f\x7f,\"]{0,60}")
_MEANINGS = {
    "kernel": "its name",
    "count": "how often the kernel runs in one iteration; 1 if unsure",
    "core_mhz": "requested core clock; empty is auto, the default",
    "memory_mhz": "requested memory clock; empty is auto, the default",
    "time_s": "seconds of one call",
    "energy_j": "joules of one call",
}
OPTIONAL = (
    "power_limit_w",
    "pass",
    "block",
    "time_se_s",
    "energy_se_j",
    "effective_core_mhz",
    "effective_memory_mhz",
    "calls",
    "temperature_c",
    "profile",
)
IDENTITY = ("state", "granularity", "model", *(each.name for each in fields(Shape)))
"""Columns that hold one value for the whole file: what the measurements are of."""

TEXTS = ("kernel", "pass", "block", *IDENTITY)
ALL = REQUIRED + OPTIONAL + IDENTITY


def check_header(names: list[str], where: str) -> None:
    """Refuse a header that has an unknown, a doubled or a missing column.

    Args:
        names: the column names of the file, in its order.
        where: file and line of the header, for the message.

    Raises:
        BadInputError: says which column is wrong and what would be right.
    """
    for position, name in enumerate(names):
        if name in names[:position]:
            raise BadInputError(f"{where}: {name}: this column appears twice; keep one of the two")
    for name in names:
        if name not in ALL:
            raise BadInputError(f"{where}: {quoted(name)}: {_unknown(name)}")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        are = "this column is" if len(missing) == 1 else "these columns are"
        raise BadInputError(
            f"{where}: {', '.join(missing)}: {are} missing ({'; '.join(f'{name}: {_MEANINGS[name]}' for name in missing)}); "
            f"a sweep needs the columns {', '.join(REQUIRED)}"
        )


def _unknown(name: str) -> str:
    for separator, called in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if separator in name:
            return f"the fields seem to be separated by {called}; separate them by commas"
    nearest = get_close_matches(name.strip().lower(), ALL, n=1)
    suggestion = f"did you mean {nearest[0]}?" if nearest else "remove it."
    return f"unknown column; {suggestion} Allowed are {', '.join(ALL)}"


class Labels:
    """A column of text, each distinct text kept once, in order of first appearance.

    Args:
        meant: what a text stands for; by default itself.
    """

    def __init__(self, meant: Callable[[str], str] = str) -> None:
        self._meant = meant
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
        return list(map(self._meant, self._codes))

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
        labels: the other columns of text, where the file has them.
        locate: gives file and line of a row, for a message.
        columns: in the order of the file.
        faults: found while the file was read.
    """

    kernel: Labels
    numbers: dict[str, FloatArray]
    labels: dict[str, Labels]
    locate: Callable[[int], str]
    columns: tuple[str, ...]
    faults: list[Fault] = field(default_factory=list)


def assemble(table: Table, *, workload: str, device: str, origin: Origin) -> Sweep:
    """Check a table of at least one row and make the sweep of it, its rows in the order of the file.

    Raises:
        BadInputError: names file, line and field of the first faulty row.
    """
    rows = len(table.numbers["time_s"])
    kernel_index = table.kernel.codes
    first_row = np.flatnonzero(np.diff(np.maximum.accumulate(kernel_index), prepend=-1))  # codes count up as they appear
    absent = np.full(rows, np.nan)
    numbers = {column.name: table.numbers.get(column.name, absent) for column in NUMBERS}

    faults = list(table.faults)
    faults += _kernel_faults(table.kernel.texts, first_row)
    faults += _count_faults(table.numbers["count"], kernel_index, first_row)
    for column in NUMBERS:
        faults += number_faults(column, numbers[column.name])
    for name, labels in table.labels.items():
        if name in IDENTITY:
            faults += _identity_faults(name, labels)
        else:
            faults += _label_faults(name, labels, kernel_index, first_row)
    if not faults:
        lacking = without_baseline(numbers, kernel_index, len(table.kernel.texts))
        for kernel in lacking[:1]:
            name, row = quoted(table.kernel.texts[kernel]), int(first_row[kernel])
            others = "" if len(lacking) == 1 else f" (so for {len(lacking):,} kernels)"
            problem = (
                f"{name} has no row with all settings empty, its run at the default clocks, the "
                f"baseline; add it, such as {_baseline_row(table, row)}{others}"
            )
            faults.append(Fault(row, "kernel", problem))
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
    sweep = Sweep(
        kernels=tuple(Kernel(*kernel) for kernel in kernels),
        kernel_index=kernel_index,
        workload=workload,
        device=device,
        origin=origin,
        **numbers,  # type: ignore[arg-type]  # arrays all, by name
    )
    return replace(sweep, **_identity(table))


def _baseline_row(table: Table, row: int) -> str:
    """The row that a kernel lacks, with words for the numbers that only its owner knows; ``row`` is one that it has."""
    fields = {"kernel": table.kernel.texts[table.kernel.codes[row]], "count": f"{table.numbers['count'][row]:.0f}"}
    fields |= {name: labels.texts[labels.codes[row]] for name, labels in table.labels.items()}
    fields |= {"time_s": "TIME", "energy_j": "ENERGY"}
    plain = {name: text if _PLAIN.fullmatch(text) else name.upper() for name, text in fields.items()}
    return ",".join(plain.get(name, "") for name in table.columns)


def _identity_faults(name: str, labels: Labels) -> Iterable[Fault]:
    row = first_true(labels.codes != 0)
    if row is not None:
        now, before = (quoted(labels.texts[code]) for code in (labels.codes[row], 0))
        yield Fault(
            row, name, f"is {now}, but {before} in the first row; a file holds one workload: write one file per workload"
        )


def _identity(table: Table) -> dict[str, Any]:
    """State, granularity and model run, as arguments of :class:`Sweep`; what the file does not say is left out."""
    texts = {name: labels.texts[0].strip() for name, labels in table.labels.items() if name in IDENTITY}
    given = {name: text for name, text in texts.items() if text}
    found: dict[str, Any] = {}
    for name, allowed in (("state", ENERGY_STATES), ("granularity", GRANULARITIES)):
        if name in given:
            found[name] = given.pop(name)
            if found[name] not in allowed:
                problem = f"is {quoted(found[name])}; must be one of {', '.join(allowed)}"
                raise BadInputError(f"{table.locate(0)}: {name}: {problem}")
    if given:
        if "model" not in given:
            raise BadInputError(f"{table.locate(0)}: model: is missing, though {min(given)} is given; name the model")
        found["run"] = _run(given, table.locate(0))
    return found


def _run(given: dict[str, str], where: str) -> ModelRun:
    name = given.pop("model")
    options: dict[str, Any] = dict(given)
    for each in fields(Shape):
        if each.name in options and isinstance(each.default, int):
            text = options[each.name]
            known = {"false": False, "true": True} if isinstance(each.default, bool) else {}
            if text not in known and (known or not text.isdecimal()):
                rule = "true or false" if known else "a whole number"
                raise BadInputError(f"{where}: {each.name}: is {quoted(text)}; must be {rule}")
            options[each.name] = known[text] if known else int(text)
    try:
        shape = build_shape(**options)
        shape.check(find_model(name))
    except BadInputError as error:
        raise BadInputError(f"{where}: model: {error}") from error
    return ModelRun(name, shape)


def identity_texts(sweep: Sweep) -> dict[str, str]:
    """The identity columns of a sweep that a file needs, each with its one value; defaults are left out."""
    texts = {"state": sweep.state if sweep.state != "ssp" else "",
             "granularity": sweep.granularity if sweep.granularity != "kernel" else ""}  # fmt: skip
    if sweep.run is not None:
        shape = {name: str(value).lower() for name, value in asdict(sweep.run.shape).items()}
        texts |= {"model": sweep.run.model} | shape
    return {name: text for name, text in texts.items() if text}


def _kernel_faults(names: list[str], first_row: NDArray[np.int64]) -> Iterable[Fault]:
    for name, row in zip(names, first_row.tolist(), strict=True):
        if not name.strip():
            yield Fault(row, "kernel", "is empty; every row must name its kernel")


def _count_faults(counts: FloatArray, kernel_index: NDArray[np.int64], first_row: NDArray[np.int64]) -> Iterable[Fault]:
    with np.errstate(invalid="ignore"):
        valid = (counts >= 1) & (counts <= LARGEST_COUNT) & (counts == np.floor(counts))
    row = first_true(~valid)
    if row is not None:
        value = float(counts[row])
        what = "is empty" if np.isnan(value) else f"is {value!r}"
        yield Fault(row, "count", f"{what}; must be {COUNT_RULE}")
    expected = counts[first_row][kernel_index]
    row = first_true(valid & (expected >= 1) & (counts != expected))
    if row is not None:
        problem = f"is {counts[row]:.0f}, but {expected[row]:.0f} in an earlier row of the same kernel; make them agree"
        yield Fault(row, "count", problem)


COUNT_RULE = "a whole number from 1 to 2**53: how often the kernel runs in one iteration"


def _label_faults(
    name: str, labels: Labels, kernel_index: NDArray[np.int64], first_row: NDArray[np.int64]
) -> Iterable[Fault]:
    codes = labels.codes
    expected = codes[first_row][kernel_index]
    row = first_true(codes != expected)
    if row is not None:
        now, before = (quoted(labels.texts[code]) for code in (codes[row], expected[row]))
        problem = f"is {now}, but {before} in an earlier row of the same kernel"
        yield Fault(row, name, f"{problem}; a kernel belongs to one {name}: give each its own name")


def _labels_at(labels: Labels | None, rows: NDArray[np.int64]) -> list[str | None]:
    if labels is None:
        return [None] * len(rows)
    texts = labels.texts
    return [texts[code] if texts[code].strip() else None for code in labels.codes[rows]]
