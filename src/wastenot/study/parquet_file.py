"""Sweeps as Parquet. Polars does it, and is imported only here and only when a Parquet file is met."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError, MissingExtraError
from wastenot.core.install import install_line
from wastenot.study.sweep import LARGEST_COUNT, NUMBERS, Fault, Sweep
from wastenot.study.table import ALL, COUNT_RULE, REQUIRED, TEXTS, Labels, Table, check_header, identity_texts

if TYPE_CHECKING:
    import polars

_MAGIC = b"PAR1"


def parse_parquet(content: bytes, name: str) -> Table:
    """Read the bytes of a Parquet file into columns.

    Args:
        content: the file.
        name: of the file, for messages.

    Returns:
        The columns, and the faults of single fields; null means what an empty field means in CSV.

    Raises:
        BadInputError: it is not Parquet, a column is wrong or there is no row.
        MissingExtraError: Polars is not installed.
    """
    if not content:
        raise BadInputError(f"{name}: row 1: the file is empty; write the columns {', '.join(REQUIRED)}")
    pl = polars_or_refuse()
    if content[:4] != _MAGIC or content[-4:] != _MAGIC:
        raise BadInputError(
            f"{name}: header: this is not a complete Parquet file; give a CSV file a name ending in .csv, or write it again"
        )
    try:
        frame = pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise BadInputError(f"{name}: header: this Parquet file cannot be read ({reason}); write it again") from error
    check_header(frame.columns, f"{name}: header")
    if frame.is_empty():
        raise BadInputError(f"{name}: row 1: there is no row; write one per run")

    faults: list[Fault] = []
    labels = {field: _labels(frame[field], name) for field in TEXTS if field in frame.columns}
    numbers = {field: _numbers(frame[field], name, faults) for field in frame.columns if field not in labels}
    return Table(
        kernel=labels.pop("kernel"),
        numbers=numbers,
        labels=labels,
        locate=lambda row: f"{name}: row {row + 1}",
        columns=tuple(frame.columns),
        faults=faults,
    )


def render_parquet(sweep: Sweep) -> bytes:
    """A sweep as Parquet; what is absent in every row is left out.

    Args:
        sweep: to be written; reading the bytes back gives the same sweep.

    Raises:
        MissingExtraError: Polars is not installed.
    """
    pl = polars_or_refuse()
    kernels = pl.DataFrame(
        {
            "kernel": [kernel.name for kernel in sweep.kernels],
            "count": [kernel.count for kernel in sweep.kernels],
            "pass": [kernel.pass_name for kernel in sweep.kernels],
            "block": [kernel.block for kernel in sweep.kernels],
        },
        schema={"kernel": pl.String, "count": pl.Int64, "pass": pl.String, "block": pl.String},
    )
    frame = kernels[sweep.kernel_index].with_columns(
        pl.Series(column.name, getattr(sweep, column.name), dtype=pl.Float64).fill_nan(None) for column in NUMBERS
    )
    frame = frame.with_columns(pl.lit(text).alias(name) for name, text in identity_texts(sweep).items())
    present = [name for name in ALL if name in REQUIRED or (name in frame.columns and frame[name].null_count() < len(sweep))]
    stream = io.BytesIO()
    frame.select(present).write_parquet(stream)
    return stream.getvalue()


def _labels(series: polars.Series, name: str) -> Labels:
    pl = polars_or_refuse()
    if series.dtype not in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        raise BadInputError(f"{name}: row 1: {series.name}: is {series.dtype}; must be text (String)")
    labels = Labels()
    labels.extend(series.cast(pl.String).fill_null("").to_list())
    return labels


def _numbers(series: polars.Series, name: str, faults: list[Fault]) -> FloatArray:
    pl = polars_or_refuse()
    field = series.name
    if not (series.dtype.is_numeric() or series.dtype == pl.Null):
        raise BadInputError(f"{name}: row 1: {field}: is {series.dtype}; must be numbers (Float64 or Int64)")
    values = series.cast(pl.Float64)
    if series.dtype.is_float():
        wrong = values.is_nan().fill_null(False)
        if wrong.any():
            faults.append(Fault(int(wrong.arg_true()[0]), field, "is NaN; must be a number, or null where it is empty"))
    elif field == "count":
        # As float64, 2**53 + 1 is 2**53: only the integers tell them apart.
        largest = series.max()
        if isinstance(largest, int) and largest > LARGEST_COUNT:
            row = int((series > LARGEST_COUNT).arg_true()[0])
            faults.append(Fault(row, field, f"is {series[row]}; must be {COUNT_RULE}"))
    return np.asarray(values.fill_null(np.nan).to_numpy(), dtype=np.float64)


def polars_or_refuse() -> Any:
    """Polars.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import polars
    except ImportError as error:
        raise MissingExtraError(f"reading and writing Parquet needs Polars: {install_line('report')}") from error
    return polars
