"""The public names that may change, by subject; what each name is stands in its docstring, further down."""

from __future__ import annotations

from collections.abc import Sequence

from docs.make.page import Page
from wastenot.core.stability import PUBLIC


def names() -> str:
    """A line for each subject that has experimental names."""
    return "".join(_subject(subject, of_it.experimental) for subject, of_it in PUBLIC.items() if of_it.experimental)


def _subject(subject: str, experimental: Sequence[str]) -> str:
    return f"- **{subject}**: {', '.join(map(_link, experimental))}\n"


def _link(name: str) -> str:
    return f"[`{name}`][wastenot.{name}]"


PAGES = (Page("api", blocks={"names": names}),)
