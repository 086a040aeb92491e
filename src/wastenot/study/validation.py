"""The rules of a sweep in memory, whoever made it: checked before it is kept, and after it is fetched."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from wastenot.errors import BadInputError
from wastenot.origin import ORIGINS
from wastenot.study.assemble import number_faults, without_baseline
from wastenot.study.columns import LARGEST_COUNT, NUMBERS, shown
from wastenot.study.sweep import Sweep

_LONGEST_NAME = 255
"""Characters in the name of a workload or a device: what every database can index."""


def check_sweep(sweep: Sweep, *, with_baseline: Collection[str] = ()) -> None:
    """Refuse a sweep that breaks a rule of the sweep files, which could not be kept or read again.

    Args:
        sweep: what to check.
        with_baseline: names of kernels whose baseline is known from elsewhere.

    Raises:
        BadInputError: names the first rule that is broken, and the kernel or the row.
    """
    where = f"sweep of {shown(sweep.workload)}"
    for what, name in (("workload", sweep.workload), ("device", sweep.device)):
        _check_text(where, what, name)
        if len(name) > _LONGEST_NAME:
            raise BadInputError(f"{where}: {what}: has {len(name)} characters; {_LONGEST_NAME} are allowed")
    if sweep.origin not in ORIGINS:
        raise BadInputError(f"{where}: origin: {shown(sweep.origin)} must be one of {', '.join(ORIGINS)}")
    _check_kernels(sweep, where)
    _check_rows(sweep, where)
    numbers = {column.name: getattr(sweep, column.name) for column in NUMBERS}
    for kernel in without_baseline(numbers, sweep.kernel_index, len(sweep.kernels)):
        name = sweep.kernels[kernel].name
        if name not in with_baseline:
            raise BadInputError(
                f"{where}: kernel: {shown(name)} has no row with all settings auto; add its run at auto, the baseline"
            )


def _check_kernels(sweep: Sweep, where: str) -> None:
    names: set[str] = set()
    for kernel in sweep.kernels:
        _check_text(where, "kernel", kernel.name)
        for what, label in (("pass", kernel.pass_name), ("block", kernel.block)):
            if label is not None:
                _check_text(where, what, label)
        if not 1 <= kernel.count <= LARGEST_COUNT:
            raise BadInputError(f"{where}: count: of {shown(kernel.name)} is {kernel.count}; must be from 1 to 2**53")
        if kernel.name in names:
            raise BadInputError(f"{where}: kernel: {shown(kernel.name)} is there twice; give each its own name")
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
        raise BadInputError(f"{where}: {what}: {shown(text)} has a NUL in it; remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInputError(f"{where}: {what}: {shown(text)} is not valid Unicode; rename it") from error
