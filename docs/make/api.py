"""The public names by subject, and which of them may be relied on; what each is stands in its docstring, further down."""

from __future__ import annotations

from collections.abc import Sequence

from docs.make.page import Page
from wastenot.core.stability import PUBLIC


def names() -> str:
    """A line for each subject: the names that stay, and those that may change."""
    return "".join(_subject(subject, of_it.stable, of_it.experimental) for subject, of_it in PUBLIC.items())


def _subject(subject: str, stable: Sequence[str], experimental: Sequence[str]) -> str:
    parts = [", ".join(map(_link, stable)), ", ".join(map(_link, experimental))]
    told = "; ".join(f"{word}{part}" for word, part in zip(("", "*experimental*: "), parts, strict=True) if part)
    return f"- **{subject}**: {told}\n"


def _link(name: str) -> str:
    return f"[`{name}`][wastenot.{name}]"


PAGES = (Page("api", blocks={"names": names}),)
