"""Sweeps as CSV.

Read column by column, so that a million rows take seconds: blocks of lines without quotes are split as a whole, from the
first other one on the reader of the standard library takes over. Lines are counted only when a message needs one.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice, repeat
from typing import TYPE_CHECKING

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.study.csv_text import check_text, plain_number, quoting_problem
from wastenot.study.sweep import LARGEST_COUNT, NUMBERS, Fault, Sweep, quoted
from wastenot.study.table import ALL, COUNT_RULE, REQUIRED, TEXTS, Labels, Table, check_header, identity_texts

if TYPE_CHECKING:
    from _csv import Reader

# Larger pieces are slower: the garbage collector walks all the rows that are alive, again and again.
_CHUNK_ROWS = 1 << 12
_BLOCK_BYTES = 1 << 18
# What RFC 4180 and the spreadsheets write; readers, ours too, take either.
_LINE_END = "\r\n"
_EMPTY_HELP = f"write a header line with the columns {','.join(REQUIRED)} and a row for each run"
_HEADER = -1


def parse_csv(content: bytes, name: str) -> Table:
    """Read the bytes of a CSV file into columns.

    Args:
        content: UTF-8, with or without a byte order mark, lines ended in any usual way.
        name: of the file, for messages.

    Returns:
        The columns, and the faults of single fields.

    Raises:
        BadInputError: the bytes are not text, the header is wrong or a row has too few or too many fields.
    """
    check_text(content, name)
    reader = _reader(content)
    try:
        header = [field.strip() for field in next(filter(None, reader), [])]
        if not header:
            raise BadInputError(f"{name}:1: header: the file is empty; {_EMPTY_HELP}")
        check_header(header, f"{name}:{_line_of(content, _HEADER)}")
        labels: dict[str, Labels] = {name: Labels(unguarded) for name in TEXTS if name in header}
        parts: dict[str, list[FloatArray]] = {name: [] for name in header if name not in labels}
        faults: list[Fault] = []
        rows = 0
        begin = content.find(b"\n") + 1
        start = begin if begin and _columns(content[:begin], len(header)) else None
        for chunk in _chunks(reader, start, len(header), content, name):
            for field, texts in zip(header, chunk, strict=True):
                if field in labels:
                    labels[field].extend(texts)
                else:
                    parts[field].append(_numbers(field, texts, rows, faults))
            rows += len(chunk[0])
    except csv.Error as error:
        raise BadInputError(f"{name}:{_line_of(content, None)}: row: {quoting_problem(error)}") from error
    if not rows:
        raise BadInputError(f"{name}:1: header: there is no row below the header; {_EMPTY_HELP}")
    return Table(
        kernel=labels.pop("kernel"),
        numbers={field: np.concatenate(arrays) for field, arrays in parts.items()},
        labels=labels,
        locate=lambda row: f"{name}:{_line_of(content, row)}",
        columns=tuple(header),
        faults=faults,
    )


def render_csv(sweep: Sweep, *, keep_formulas: bool = False) -> Iterator[bytes]:
    """A sweep as CSV, a piece at a time; what is absent in every row is left out.

    Args:
        sweep: to be written; reading the pieces back gives the same sweep.
        keep_formulas: write names that a spreadsheet would compute as they are, rather than behind an apostrophe.

    Yields:
        UTF-8, the header first.
    """
    shown = _read_back if keep_formulas else _guarded
    kernel_texts = {
        "kernel": [shown(kernel.name) for kernel in sweep.kernels],
        "count": [str(kernel.count) for kernel in sweep.kernels],
        "pass": [shown(kernel.pass_name or "") for kernel in sweep.kernels],
        "block": [shown(kernel.block or "") for kernel in sweep.kernels],
    }
    identity = identity_texts(sweep)
    numbers = {column.name: getattr(sweep, column.name) for column in NUMBERS}
    present = [
        name
        for name in ALL
        if name in REQUIRED
        or name in identity
        or (name in kernel_texts and any(kernel_texts[name]))
        or (name in numbers and not np.isnan(numbers[name]).all())
    ]
    yield (",".join(present) + _LINE_END).encode()
    for start in range(0, len(sweep), _CHUNK_ROWS):
        rows = slice(start, start + _CHUNK_ROWS)
        index = sweep.kernel_index[rows].tolist()
        columns: list[Iterable[str]] = []
        for name in present:
            if name in kernel_texts:
                columns.append(map(kernel_texts[name].__getitem__, index))
            elif name in identity:
                columns.append(repeat(shown(identity[name]), len(index)))
            else:
                columns.append(_texts(name, numbers[name][rows]))
        yield (_LINE_END.join(map(",".join, zip(*columns, strict=True))) + _LINE_END).encode()


def _reader(content: bytes, encoding: str = "utf-8-sig") -> Reader:
    return csv.reader(io.TextIOWrapper(io.BytesIO(content), encoding, newline=""), strict=True)


def _line_of(content: bytes, row: int | None) -> int:
    """The line where a row begins; ``None`` asks for the row that cannot be read."""
    reader = _reader(content)
    line, current = 1, _HEADER
    try:
        for fields in reader:
            if fields:
                if current == row:
                    return line
                current += 1
            line = reader.line_num + 1
    except csv.Error:
        pass
    return line


def _chunks(
    reader: Iterable[list[str]], start: int | None, width: int, content: bytes, name: str
) -> Iterator[Sequence[Sequence[str]]]:
    """The rows in large pieces, each turned into its columns; blank lines are passed over.

    ``start`` is where they begin, ``None`` if ``reader`` has to find that out.
    """
    rows_before = 0
    while start is not None:
        if start == len(content):
            return
        end = content.find(b"\n", start + _BLOCK_BYTES) + 1 or len(content)
        columns = _columns(content[start:end], width)
        if columns is None:
            reader = _reader(content[start:], "utf-8")  # what looks like a byte order mark is none there
            break
        yield columns
        rows_before += len(columns[0])
        start = end
    rows = iter(reader)
    while chunk := list(islice(rows, _CHUNK_ROWS)):
        widths = set(map(len, chunk))
        if widths != {width}:
            chunk = [fields for fields in chunk if fields]
            for row, fields in enumerate(chunk, rows_before):
                if len(fields) != width:
                    fix = "add the missing" if len(fields) < width else "remove the surplus"
                    raise BadInputError(
                        f"{name}:{_line_of(content, row)}: row: has {len(fields)} fields, the header {width}; "
                        f"{fix} fields, and quote a name that has a comma in it"
                    )
        if chunk:
            rows_before += len(chunk)
            yield list(zip(*chunk, strict=True))


def _columns(block: bytes, width: int) -> list[list[str]] | None:
    """The columns of whole lines; ``None`` where any of them takes more than to be split at its commas."""
    if b'"' in block or block.count(b"\r") != block.count(b"\r\n"):
        return None
    plain = block.replace(b"\r\n", b"\n")
    plain = plain if plain.endswith(b"\n") else plain + b"\n"
    marks = np.frombuffer(plain, dtype=np.uint8)
    ends = np.flatnonzero(marks == ord("\n"))
    commas = np.searchsorted(np.flatnonzero(marks == ord(",")), ends)
    lengths = np.diff(ends, prepend=-1)
    if (np.diff(commas, prepend=0) != width - 1).any() or lengths.min() == 1 or lengths.max() > csv.field_size_limit():
        return None
    fields = plain.decode()[:-1].replace("\n", ",").split(",")
    return [fields[column::width] for column in range(width)]


def _numbers(field: str, texts: Sequence[str], rows_before: int, faults: list[Fault]) -> FloatArray:
    """The numbers of a column, NaN where a field is empty; the first text that is none becomes a fault."""
    together = "".join(texts)
    # float() reads more than plain notation: 'nan', 'infinity', '1_000' and the digits of other scripts.
    if field != "count" and together.isascii() and not any(odd in together for odd in "_nN"):
        try:
            return np.fromiter(map(float, texts), np.float64, len(texts))
        except ValueError:
            pass
    values = {text: plain_number(text) for text in set(texts)}
    wrong = {text for text, value in values.items() if value is None or (field == "count" and not _whole(text, value))}
    if wrong:
        row = next(row for row, text in enumerate(texts) if text in wrong)
        rule = COUNT_RULE if field == "count" else "a number such as 0.00125 or 1.25e-3"
        faults.append(Fault(rows_before + row, field, f"is {quoted(texts[row])}; must be {rule}"))
    return np.fromiter(map(values.__getitem__, texts), np.float64, len(texts))


def _whole(text: str, value: float) -> bool:
    # A float64 rounds 2**53 + 1 to 2**53, and 3.00000000000000000001 to 3: only the text tells them apart.
    return np.isnan(value) or (1 <= value <= LARGEST_COUNT and value.is_integer() and Decimal(text.strip()) == int(value))


def _guarded(text: str) -> str:
    # What begins so is computed by the spreadsheet that opens the file, and may run programs.
    return _escaped(f"'{text}" if _FORMULA.match(text) else text)


def _read_back(text: str) -> str:
    # As it is, unless reading would take an apostrophe away.
    return _guarded(text) if text.startswith("'") else _escaped(text)


def unguarded(text: str) -> str:
    """A name as it was before an apostrophe kept a spreadsheet from computing it."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def _escaped(text: str) -> str:
    # csv.writer of Python 3.11 leaves a lone carriage return unquoted, which its reader takes for a line end.
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text


def _texts(name: str, values: FloatArray) -> list[str]:
    texts = list(map(repr, values.tolist()))
    if name in ("time_s", "energy_j"):
        return texts
    return ["" if text == "nan" else text.removesuffix(".0") for text in texts]
