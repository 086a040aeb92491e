"""The public names by subject, each with what it is and whether it may be relied on."""

from __future__ import annotations

import inspect
import re
from operator import attrgetter

import wastenot as wn
from docs.make.page import Page
from wastenot.core.stability import PUBLIC

_NOT_OF_ITS_TYPE = {"AUTO": "The default clocks: the driver decides"}  # a value, which has no docstring of its own


def names() -> str:
    """A table of all public names."""
    lines = ["| name | what it is | |", "|---|---|---|"]
    for subject, of_it in PUBLIC.items():
        lines.append(f"| **{subject}** | | |")
        for kind in ("stable", "experimental"):
            lines += [f"| [`{name}`][wastenot.{name}] | {_first_line(name)} | {kind} |" for name in getattr(of_it, kind)]
    return "\n".join(lines) + "\n"


def _first_line(name: str) -> str:
    said = _NOT_OF_ITS_TYPE.get(name) or inspect.getdoc(attrgetter(name)(wn)) or ""
    line = said.partition("\n")[0].removesuffix(".").replace("|", "\\|")
    line = re.sub(r":\w+:`(?:[\w.]*\.)?(\w+)`", r"`\1`", line)
    return line.replace("``", "`")


PAGES = (Page("api", blocks={"names": names}),)
