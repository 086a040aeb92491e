"""Samples in what a program serves to Prometheus, the text format of exposition."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_LINE = re.compile(r'^([A-Za-z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)')
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One value of a series."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(text: str, prefixes: tuple[str, ...] = ("",)) -> Iterator[Sample]:
    """The samples of a page whose names begin with one of some prefixes; lines that are none are skipped."""
    for line in text.splitlines():
        if not line.startswith(prefixes):  # most of a page is of no interest, and this is cheap
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        yield Sample(match[1], dict(_LABEL.findall(match[2])) if match[2] else {}, value)
