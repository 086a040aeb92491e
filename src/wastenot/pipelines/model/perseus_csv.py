"""Profiles as Perseus keeps them: CSV files ``stage,instruction,frequency,time,energy``."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from wastenot.core.errors import BadInputError
from wastenot.core.origin import Origin
from wastenot.core.setting import Setting, format_mhz
from wastenot.core.suggest import suggestion
from wastenot.frontiers.algebra import choice
from wastenot.pipelines.model.profile import PipelineProfile
from wastenot.pipelines.model.schedule import NAMES
from wastenot.study.csv_text import check_text, origin_of, plain_number, quoting_problem
from wastenot.study.sweep import quoted
from wastenot.study.sweep_file import read_bytes

COLUMNS: Final = ("stage", "instruction", "frequency", "time", "energy")
_MEANINGS: Final = {
    "stage": "from 0",
    "instruction": "such as forward",
    "frequency": "core clock in MHz, or auto",
    "time": "in s, of one micro-batch",
    "energy": "in J, of one GPU",
}
_AUTO: Final = "auto"
_MOST_STAGES: Final = 100_000
_MOST: Final = 1e9  # s, J or MHz: a slip of units, and sums stay finite

_Key = tuple[int, str]


class _Row(NamedTuple):
    line: int
    core_mhz: float | None
    time_s: float
    energy_j: float
    origin: Origin


def read_perseus_csv(path: str | os.PathLike[str], *, waiting_w: float, device: str = "unknown GPU") -> PipelineProfile:
    """The profile in a file.

    Args:
        path: time in s and energy in J of each instruction of each stage, on one GPU and for one micro-batch, at each core
            clock in MHz; a frequency of ``auto`` stands for the default clocks. A column ``origin`` says ``simulated`` where
            the numbers were not measured; more columns are passed over.
        waiting_w: power that the GPU draws while it waits for another one.
        device: the GPU.

    Raises:
        BadInputError: the file cannot be read or breaks a rule, such as that all instructions have the same clocks (one that
            lost rows looks like a file with others); names file and line.
    """
    rows = _rows(path)
    _refuse_gaps(rows, path)
    _refuse_uneven(rows, path)
    name = Path(path).stem
    origins = {row.origin for each in rows.values() for row in each}
    return PipelineProfile(
        name,
        device,
        "measured" if origins == {"measured"} else "simulated",
        {key: choice([(row.time_s, row.energy_j, Setting(row.core_mhz)) for row in each]) for key, each in rows.items()},
        {key: (_baseline(each).time_s, _baseline(each).energy_j) for key, each in rows.items()},
        waiting_w,
        baseline_clocks="auto" if all(_baseline(each).core_mhz is None for each in rows.values()) else "highest",
    )


def _baseline(rows: list[_Row]) -> _Row:
    """At the default clocks, or at the highest where these were not measured."""
    return max(rows, key=lambda row: float("inf") if row.core_mhz is None else row.core_mhz)


# ---- rows ---------------------------------------------------------------------------------------------------


def _rows(path: str | os.PathLike[str]) -> dict[_Key, list[_Row]]:
    found: dict[_Key, dict[float | None, _Row]] = {}
    content = read_bytes(path)
    check_text(content, os.fspath(path))
    reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
    header: list[str] = []
    line = 1
    try:
        for fields in reader:
            begin, line = line, reader.line_num + 1
            where = f"{path}:{begin}"
            if not any(field.strip() for field in fields):
                continue
            if not header:
                header = [field.strip().lower() for field in fields]
                _check_header(header, where)
                continue
            if len(fields) != len(header):
                raise BadInputError(f"{where}: row: has {len(fields)} fields, the header {len(header)}")
            key, row = _row(dict(zip(header, fields, strict=True)), where, begin)
            earlier = found.setdefault(key, {}).setdefault(row.core_mhz, row)
            if earlier is not row:
                raise BadInputError(
                    f"{where}: row: {key[1]} of stage {key[0]} at {format_mhz(row.core_mhz)} is already in line "
                    f"{earlier.line}; keep one, or their mean"
                )
    except csv.Error as error:
        raise BadInputError(f"{path}:{line}: row: {quoting_problem(error)}") from error
    if not found:
        raise BadInputError(f"{path}:1: {'row: there are none below the header' if header else 'header: the file is empty'}")
    return {key: list(rows.values()) for key, rows in found.items()}


def _check_header(header: list[str], where: str) -> None:
    for name in COLUMNS:
        if header.count(name) != 1:
            problem = f"appears {header.count(name)} times" if name in header else f"is missing ({_MEANINGS[name]})"
            raise BadInputError(f"{where}: header: column {name} {problem}; give {','.join(COLUMNS)}")


def _row(fields: Mapping[str, str], where: str, line: int) -> tuple[_Key, _Row]:
    stage = _number(fields, "stage", where)
    if not (stage.is_integer() and 0 <= stage <= _MOST_STAGES):
        raise BadInputError(f"{where}: stage: is {quoted(fields['stage'])}; must be a whole number, at least 0")
    name = fields["instruction"].strip().lower()
    if name not in NAMES:
        raise BadInputError(f"{where}: instruction: {quoted(fields['instruction'])} is unknown; {suggestion(name, NAMES)}")
    numbers: list[float | None] = []
    for column in COLUMNS[2:]:
        if column == "frequency" and fields[column].strip().lower() == _AUTO:
            numbers.append(None)
            continue
        number = _number(fields, column, where)
        if not 0.0 < number < float("inf"):
            raise BadInputError(f"{where}: {column}: is {quoted(fields[column])}; must be above 0 and finite")
        if number > _MOST:
            raise BadInputError(f"{where}: {column}: is {quoted(fields[column])}; must be at most {_MOST:.0e}")
        numbers.append(number)
    core_mhz, time_s, energy_j = numbers
    assert time_s is not None and energy_j is not None
    return (int(stage), name), _Row(line, core_mhz, time_s, energy_j, origin_of(fields.get("origin"), where))


def _number(fields: Mapping[str, str], column: str, where: str) -> float:
    number = plain_number(fields[column])
    if number is None or math.isnan(number):
        raise BadInputError(f"{where}: {column}: is {quoted(fields[column])}; must be a number ({_MEANINGS[column]})")
    return number


# ---- what a pipeline needs ----------------------------------------------------------------------------------


def _refuse_gaps(rows: Mapping[_Key, list[_Row]], path: str | os.PathLike[str]) -> None:
    names: dict[int, set[str]] = {}
    for stage, name in rows:
        names.setdefault(stage, set()).add(name)
    last = max(names)
    for stage in range(last + 1):
        if stage not in names:
            raise BadInputError(f"{path}: stage {stage} has no rows, but there are stages up to {last}; add them")
    for name in NAMES:
        having = [stage for stage in names if name in names[stage]]
        # The last stage needs no recomputation: its backward follows its forward at once.
        lacking = [stage for stage in names if name not in names[stage] and (name, stage) != ("recomputation", last)]
        if having and lacking:
            line = rows[having[0], name][0].line
            raise BadInputError(
                f"{path}: stage {min(lacking)} has no {name}, and stage {having[0]} has (line {line}); add its rows"
            )
    for whole, parts in (("forward", ()), ("backward", ("backward_input", "backward_weight"))):
        absent = [part for part in parts if part not in names[0]]
        if whole not in names[0] and (absent or not parts):
            lacks = whole if len(absent) == len(parts) else absent[0]
            raise BadInputError(f"{path}: no stage has a {lacks}; a pipeline needs a forward and a backward of each stage")


def _refuse_uneven(rows: Mapping[_Key, list[_Row]], path: str | os.PathLike[str]) -> None:
    clocks = {key: {row.core_mhz for row in each} for key, each in rows.items()}
    every = sorted(set().union(*clocks.values()), key=lambda core_mhz: -float("inf") if core_mhz is None else -core_mhz)
    most = max(clocks, key=lambda key: len(clocks[key]))
    for (stage, name), measured in clocks.items():
        missing = [core_mhz for core_mhz in every if core_mhz not in measured]
        which = f"{name} of stage {stage}"
        at = ", ".join(map(format_mhz, missing[:3])) + (", ..." if len(missing) > 3 else "")
        if missing:
            raise BadInputError(
                f"{path}:{rows[stage, name][-1].line}: {which} has {len(measured)} clocks, {most[1]} of stage {most[0]} "
                f"{len(clocks[most])}: {at} missing; add them, or leave them out everywhere"
            )
