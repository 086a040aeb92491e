"""What an error says about an unknown name: the nearest known one, and all known ones."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST_LISTED = 20


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known name, if any is near, and the known names."""
    names = list(known)
    by_lower = {known_name.lower(): known_name for known_name in names}
    near = [by_lower[match] for match in get_close_matches(name.lower(), by_lower, n=1)]
    more = ", ..." if len(names) > _MOST_LISTED else ""
    return (f"did you mean '{near[0]}'? " if near else "") + f"There are: {', '.join(names[:_MOST_LISTED])}{more}"
