"""What an error says about an unknown name: the nearest known one, and all known ones."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST_LISTED = 20


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is nearest to one that was typed, whatever its case, hyphens and underscores; if any is near."""
    plain = {_plain(known_name): known_name for known_name in known}
    near = get_close_matches(_plain(name), plain, n=1)
    return plain[near[0]] if near else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known name, if any is near, and the known names."""
    names = list(known)
    near = nearest(name, names)
    more = ", ..." if len(names) > _MOST_LISTED else ""
    listed = f"here are: {', '.join(names[:_MOST_LISTED])}{more}"
    return f"t{listed}" if near is None else f"did you mean '{near}'? T{listed}"


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
