"""The public names by subject, each with what it is and whether it may be relied on."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from operator import attrgetter

import wastenot as wn
from docs.make.page import Page
from wastenot.core.stability import PUBLIC

_NOT_OF_ITS_TYPE = {"AUTO": "The default clocks: the driver decides"}  # a value, which has no docstring of its own


def names() -> str:
    """What each verb is, by subject, and the names that need no words: types, and what reads and writes their files."""
    return "\n\n".join(_subject(subject, of_it.stable, of_it.experimental) for subject, of_it in PUBLIC.items()) + "\n"


def _subject(subject: str, stable: Sequence[str], experimental: Sequence[str]) -> str:
    described = [name for name in (*stable, *experimental) if not _explains_itself(name)] or stable
    lines = [
        f"- {_link(name)}{' (experimental)' if name in experimental else ''}: {_first_line(name)}" for name in described
    ]
    others = [", ".join(_link(name) for name in names if name not in described) for names in (stable, experimental)]
    also = "; ".join(f"{word} {names}" for word, names in zip(("also", "experimental:"), others, strict=True) if names)
    return "\n".join([f"**{subject}**", "", *lines, *([f"- {also}"] if also else [])])


def _explains_itself(name: str) -> bool:
    in_serve, _, last = name.rpartition(".")  # the verbs of serving are named after their commands
    return bool(in_serve) or (last[0].isupper() and not last.isupper()) or last.startswith(("read_", "write_"))


def _link(name: str) -> str:
    return f"[`{name}`][wastenot.{name}]"


def _first_line(name: str) -> str:
    said = _NOT_OF_ITS_TYPE.get(name) or inspect.getdoc(attrgetter(name)(wn)) or ""
    line = said.partition("\n")[0].partition("; ")[0].removesuffix(".")
    line = re.sub(r":\w+:`(?:[\w.]*\.)?(\w+)`", r"`\1`", line)
    return line.replace("``", "`")


PAGES = (Page("api", blocks={"names": names}),)
