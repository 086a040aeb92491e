"""Blocks of a page that a script computes from data, so that no number in them is typed.

    <!-- computed: NAME -->
    | table | ... |
    <!-- end -->

A test computes them again and compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?")
_BLOCK = re.compile(r"(?<=<!-- computed: )([\w-]+)( -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)


def blocks_of(page: Path) -> dict[str, str]:
    """The blocks of a page by name."""
    return {name: text for name, _, text in _BLOCK.findall(page.read_text())}


def near(shown: Mapping[str, str], computed: Mapping[str, str]) -> bool:
    """Whether blocks have the same words and nearly the same numbers: fits end a little elsewhere on another processor."""
    if shown.keys() != computed.keys():
        return False
    for name, text in shown.items():
        if _NUMBER.sub("#", text) != _NUMBER.sub("#", computed[name]):
            return False
        for one, other in zip(_NUMBER.findall(text), _NUMBER.findall(computed[name]), strict=True):
            if abs(_value(one) - _value(other)) > 0.05 * abs(_value(one)) + 0.5:
                return False
    return True


def _value(number: str) -> float:
    return float(number.replace(",", "").replace("−", "-"))


def write_blocks(page: Path, blocks: Mapping[str, str]) -> None:
    """Write blocks into a page; it must have every one of them."""
    missing = blocks.keys() - blocks_of(page).keys()
    if missing:
        raise ValueError(f"{page}: no block '{min(missing)}'")
    page.write_text(_BLOCK.sub(lambda found: f"{found[1]}{found[2]}{blocks.get(found[1], found[3])}", page.read_text()))


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    first, *others = ["| " + " | ".join(line) + " |\n" for line in (list(heads), *map(list, rows))]
    return first + "|" + "---|" * (first.count(" | ") + 1) + "\n" + "".join(others)


def signed(value: float, digits: int, unit: str = "") -> str:
    """A number with its sign, as the pages write it."""
    return f"{value:+.{digits}f}{unit}".replace("-", "−")
