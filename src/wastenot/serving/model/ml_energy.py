"""Operating points of servers as the ML.ENERGY leaderboard publishes them (https://ml.energy/leaderboard).

A CSV file has a row for each configuration; a JSON file is one of the leaderboard's own: of a task (``public/data/tasks``),
whose ``configurations`` name their models, or of a model (``public/data/models``), which names its task. Only language
models, and those that also read images and videos, make tokens; tables of others are refused. A table of one's own may have
a column ``origin`` that says ``simulated``.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wastenot.core.errors import BadInputError
from wastenot.core.suggest import suggestion
from wastenot.serving.tables.records import Percentiles, ServingPoint
from wastenot.study.csv_text import check_text, origin_of, quoting_problem

_REQUIRED = ("model_id", "gpu_model", "num_gpus", "max_num_seqs", "energy_per_token_joules", "median_itl_ms")
SOURCE = "ML.ENERGY: "
"""How the sources of points begin that are read from such a file."""
_REMEDY = "give a table of the ML.ENERGY leaderboard, with columns such as " + ", ".join(_REQUIRED[:4])


def read_ml_energy(path: str | Path) -> tuple[ServingPoint, ...]:
    """The points of a file of the leaderboard, in its order.

    Raises:
        BadInputError: the file cannot be read, or a configuration is not one of a model that makes tokens.
    """
    text = text_of_file(path)
    rows = _of_json(text, str(path)) if text.lstrip()[:1] in {"{", "["} else _of_csv(text, str(path))
    points = tuple(_point(row, where, str(path)) for where, row in rows)
    if not points:
        raise BadInputError(f"{path}: holds no configuration; {_REMEDY}")
    return points


def text_of_file(path: str | Path) -> str:
    """What a table's file holds.

    Raises:
        BadInputError: it cannot be read, or is no text.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    check_text(content, str(path))
    return content.decode("utf-8-sig")


def _of_csv(text: str, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for column in _REQUIRED:
            if column not in (reader.fieldnames or ()):
                known = [str(each) for each in reader.fieldnames or ()]
                hint = f" ({suggestion(column, known)})" if known else ""
                raise BadInputError(f"{name}:1: has no column {column}{hint}; {_REMEDY}")
        for row in reader:
            where = f"{name}:{reader.line_num}"
            if None in row or None in row.values():
                raise BadInputError(
                    f"{where}: has {'more' if None in row else 'fewer'} fields than there are columns; is it truncated?"
                )
            yield where, row
    except csv.Error as error:
        raise BadInputError(f"{name}:{reader.line_num}: {quoting_problem(error)}") from error


def _of_json(text: str, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{name}: is not JSON: {error}") from error
    of_all = {key: value for key, value in document.items() if key != "configurations"} if isinstance(document, dict) else {}
    listed = document.get("configurations") if isinstance(document, dict) else document
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise BadInputError(f"{name}: has no list of configurations; {_REMEDY}")
    for index, row in enumerate(listed):
        where, parallel = f"{name}: configuration {index + 1}", row.get("parallelization") or {}
        if not isinstance(parallel, dict):
            raise BadInputError(f"{where}: parallelization {parallel!r:.60} is not a JSON object; {_REMEDY}")
        known = {**of_all, **row, **parallel}
        for column in _REQUIRED:
            if column not in known:
                raise BadInputError(f"{where}: has no {column}; {_REMEDY}")
        yield where, known


def _point(row: Mapping[str, Any], where: str, name: str) -> ServingPoint:
    energy_j, power_w = (
        positive_number(row, "energy_per_token_joules", where),
        positive_number(row, "avg_power_watts", where),
    )
    tokens_per_s = positive_number(row, "output_throughput_tokens_per_sec", where)
    itl_ms = {each: positive_number(row, f"{each}_itl_ms", where) for each in ("median", "p90", "p95", "p99")}
    if tokens_per_s is None and energy_j is not None and power_w is not None:
        tokens_per_s = power_w / energy_j
    if energy_j is None or itl_ms["median"] is None or tokens_per_s is None:
        raise BadInputError(f"{where}: needs energy_per_token_joules, median_itl_ms, and a throughput or a power")
    return ServingPoint(
        model=text_of(row, "model_id", where),
        gpu=text_of(row, "gpu_model", where),
        gpus=whole_number(row, "num_gpus", where),
        task=str(row.get("task") or "").strip(),
        max_running=whole_number(row, "max_num_seqs", where),
        mean_running=positive_number(row, "avg_batch_size", where),
        energy_per_token_j=energy_j,
        power_w=power_w,
        tokens_per_s=tokens_per_s,
        output_tokens=positive_number(row, "avg_output_len", where),
        itl=Percentiles(None, *(None if each is None else each / 1e3 for each in itl_ms.values())),
        tensor_parallel=whole_number(row, "tensor_parallel", where, 1),
        expert_parallel=whole_number(row, "expert_parallel", where, 1),
        data_parallel=whole_number(row, "data_parallel", where, 1),
        precision=str(row.get("weight_precision") or "").strip(),
        source=f"{SOURCE}{Path(name).name}",
        evidence=origin_of(str(row.get("origin") or ""), where),
    )


def positive_number(row: Mapping[str, Any], column: str, where: str) -> float | None:
    """A positive number; ``None`` where the table leaves it open."""
    value = row.get(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 < number < math.inf:
        raise BadInputError(f"{where}: {column} {value!r} is not a positive number; correct it or leave the row out")
    return number


def text_of(row: Mapping[str, Any], column: str, where: str) -> str:
    """A name that is there."""
    value = row.get(column)
    if not isinstance(value, str) or not value.strip():
        raise BadInputError(f"{where}: {column} {value!r:.60} is not a name; correct it or leave the row out")
    return value.strip()


def whole_number(row: Mapping[str, Any], column: str, where: str, default: int | None = None) -> int:
    """A positive whole number, or the default where the table leaves it open."""
    number = positive_number(row, column, where)
    if number is None and default is not None:
        return default
    if number is None or number != int(number):
        raise BadInputError(f"{where}: {column} {row.get(column)!r} is not a whole number; correct it or leave the row out")
    return int(number)
