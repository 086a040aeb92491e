"""What an error says about an unknown name: the nearest known one, and all known ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    known_ones = f"here are: {listed(names)}"
    return f"t{known_ones}" if near is None else f"did you mean '{near}'? T{known_ones}"


def listed(names: Sequence[str]) -> str:
    """Names for an error message; of many only the first."""
    more = f", and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(names[:_MOST_LISTED]) + more


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
