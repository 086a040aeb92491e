"""Traces of real services, read from the files that people have of them."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from wastenot.core.arrays import IndexArray
from wastenot.core.errors import BadInputError
from wastenot.core.files import read_text
from wastenot.core.samples import file_named
from wastenot.core.wording import counted
from wastenot.serving.model.requests import Requests

_MOST_TOKENS = 1_000_000_000
_BLOCK_TOKENS = 512
"""Of a block of Mooncake's ``hash_ids``."""

Moment = float | datetime
"""Seconds, or a date with a time of day; a trace has one or the other throughout."""


@dataclass(frozen=True, slots=True)
class _Form:
    """The names of fields that a kind of trace has, and how it writes times."""

    name: str
    arrival: str
    prompt: str
    output: str
    moment: Callable[[object], Moment]


def _seconds(value: object) -> float:
    seconds = float(value)  # type: ignore[arg-type]  # what cannot be a number is told as such by whoever calls
    if not math.isfinite(seconds):
        raise ValueError
    return seconds


FORMS = (
    _Form("ours", "arrival_s", "prompt_tokens", "output_tokens", _seconds),
    _Form(
        "Azure's", "TIMESTAMP", "ContextTokens", "GeneratedTokens", lambda value: datetime.fromisoformat(str(value).strip())
    ),
    _Form("Mooncake's", "timestamp", "input_length", "output_length", lambda value: _seconds(value) / 1e3),
    _Form("BurstGPT's", "Timestamp", "Request tokens", "Response tokens", _seconds),
)
"""Kinds of traces that are read."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A trace that was read.

    Attributes:
        requests: sorted by arrival, the first at 0.
        left_out: lines that were left out, each as an error would name it; empty unless they were allowed to be.
        moved: requests that did not stand in the order of their arrivals; 0 unless they were allowed not to.
    """

    requests: Requests
    left_out: tuple[str, ...] = ()
    moved: int = 0


def read_trace(path: str | os.PathLike[str], *, lenient: bool = False, prefix_blocks: int | None = None) -> Trace:
    """Read the requests of a service.

    CSV files with a header and files of JSON lines are read alike. Their fields are ours (``arrival_s``,
    ``prompt_tokens``, ``output_tokens``) or those of the public traces: Azure's (``TIMESTAMP``, ``ContextTokens``,
    ``GeneratedTokens``), Mooncake's (``timestamp`` in milliseconds, ``input_length``, ``output_length``), BurstGPT's
    (``Timestamp``, ``Request tokens``, ``Response tokens``). Other fields are not looked at. Arrivals are counted from the
    first.

    Args:
        path: of the file, or the sample ``sample:requests.csv``.
        lenient: leave lines out that are no requests (cut off, lengths of 0), and sort requests that are not in the order of
            their arrivals, instead of refusing the file.
        prefix_blocks: that a cache of prefixes holds, which all requests share; ``hash_ids`` of the lines name the blocks of
            512 tokens of their prompts. The requests' ``cached_tokens`` are of the blocks at the beginning of each prompt
            that earlier requests left in the cache, by least recent use; a block is there as soon as its request has come.
            By default nothing is cached.

    Raises:
        BadInputError: the file cannot be read, is none of these, or has a line that is wrong; the text names the first.
    """
    path = file_named(path)
    text = read_text(path, "give a trace as CSV or JSON lines")
    moments: list[Moment] = []
    prompts, outputs, blocks, lines, wrong = [], [], [], [], []
    form: _Form | None = None
    for line, fields in _rows(text, str(path)):
        if isinstance(fields, str):
            wrong.append(f"{path}:{line}: {fields}")
            continue
        form = form or _form_of(fields, str(path))
        read = _request(fields, form)
        if isinstance(read, str):
            wrong.append(f"{path}:{line}: {read}")
            continue
        if prefix_blocks is not None:
            named = _blocks(fields)
            if isinstance(named, str):
                wrong.append(f"{path}:{line}: {named}")
                continue
            blocks.append(named)
        moments.append(read[0])
        prompts.append(read[1])
        outputs.append(read[2])
        lines.append(line)
    if wrong and not lenient:
        others = f" (and {counted(len(wrong) - 1, 'other line')} like it)" if len(wrong) > 1 else ""
        raise BadInputError(f"{wrong[0]}{others}; fix the line, or leave such lines out (`lenient`)")
    if not moments:
        raise BadInputError(f"{path}: holds no requests; give a trace as CSV with a header or as JSON lines")

    try:
        arrival = np.array([_since(moment, moments[0]) for moment in moments])
    except TypeError:
        raise BadInputError(f"{path}: some times have a time zone and others have none; write all the same way") from None
    earlier = np.flatnonzero(np.diff(arrival) < 0)
    if len(earlier) and not lenient:
        raise BadInputError(
            f"{path}:{lines[earlier[0] + 1]}: arrives before the previous request; sort the lines by time, or have "
            "them sorted (`lenient`)"
        )
    order = np.argsort(arrival, kind="stable")
    sorted_s, prompt = arrival[order], np.array(prompts, dtype=np.intp)[order]
    cached = None if prefix_blocks is None else _cached(prompt, [blocks[each] for each in order], prefix_blocks)
    return Trace(
        Requests(sorted_s - sorted_s[0], prompt, np.array(outputs, dtype=np.intp)[order], cached), tuple(wrong), len(earlier)
    )


def _since(moment: Moment, first: Moment) -> float:
    passed = moment - first  # type: ignore[operator]  # both are of the same form
    return passed / timedelta(seconds=1) if isinstance(passed, timedelta) else float(passed)


def _rows(text: str, where: str) -> Iterator[tuple[int, Mapping[str, object] | str]]:
    """Lines with their numbers: their fields, or what is wrong with them."""
    if text.lstrip().startswith("{"):
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield number, _object(line)
        return
    reader = csv.reader(io.StringIO(text))
    header = [name.strip() for name in next(reader, [])]
    if not header:
        raise BadInputError(f"{where}: is empty; give a trace as CSV with a header or as JSON lines")
    try:
        for row in reader:
            if row and len(row) != len(header):
                yield reader.line_num, f"has {counted(len(row), 'field')} of {len(header)}: truncated?"
            elif row:
                yield reader.line_num, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise BadInputError(f"{where}:{reader.line_num}: is not CSV: {error}") from error


def _object(line: str) -> Mapping[str, object] | str:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return "is not JSON: truncated?"
    return fields if isinstance(fields, dict) else "is not a JSON object"


def _form_of(fields: Mapping[str, object], where: str) -> _Form:
    for form in FORMS:
        if {form.arrival, form.prompt, form.output} <= fields.keys():
            return form
    known = "; ".join(f"{form.name}: {form.arrival}, {form.prompt}, {form.output}" for form in FORMS)
    raise BadInputError(f"{where}: is not in a known trace format ({known})")


def _request(fields: Mapping[str, object], form: _Form) -> tuple[Moment, int, int] | str:
    """When a request comes, its prompt's and its answer's tokens; or what is wrong."""
    try:
        moment = form.moment(fields[form.arrival])
    except (KeyError, ValueError, TypeError, OverflowError):
        return f"'{form.arrival}' is {_shown(fields, form.arrival)}, not a time"
    tokens = []
    for name in (form.prompt, form.output):
        value = fields.get(name)
        try:
            number = float(value)  # type: ignore[arg-type]
        except (ValueError, TypeError, OverflowError):
            number = math.nan
        if isinstance(value, bool) or not number.is_integer() or not 1 <= number <= _MOST_TOKENS:
            return f"'{name}' is {_shown(fields, name)}, not a whole number from 1 to {_MOST_TOKENS:,}"
        tokens.append(int(number))
    return moment, tokens[0], tokens[1]


def _blocks(fields: Mapping[str, object]) -> list[int] | str:
    """The blocks of a request's prompt; or what is wrong."""
    named = fields.get("hash_ids")
    if isinstance(named, list) and all(isinstance(each, int) for each in named):
        return named
    return f"'hash_ids' is {_shown(fields, 'hash_ids')}, not a list of whole numbers, which a prefix cache needs"


def _cached(prompt_tokens: IndexArray, blocks: Sequence[Sequence[int]], room: int) -> IndexArray:
    """Tokens of each prompt that are in a cache of ``blocks`` blocks; at least one of each is not; shape (requests,)."""
    cache: OrderedDict[int, None] = OrderedDict()
    found = np.zeros(len(prompt_tokens), dtype=np.intp)
    for place, named in enumerate(blocks):
        there = next((count for count, each in enumerate(named) if each not in cache), len(named))
        found[place] = min(there * _BLOCK_TOKENS, prompt_tokens[place] - 1)
        for each in reversed(named):  # the first ones stay longest: without them the others are of no use
            cache[each] = None
            cache.move_to_end(each)
        while len(cache) > room:
            cache.popitem(last=False)
    return found


def _shown(fields: Mapping[str, object], name: str) -> str:
    return f"{fields[name]!r:.60}" if name in fields else "missing"
