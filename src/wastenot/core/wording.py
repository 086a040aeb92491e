"""Words that depend on numbers."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """A number and what it counts: ``1 kernel``, ``46 kernels``, ``2 passes``.

    Args:
        number: of things; thousands are separated.
        noun: one of them, perhaps after an adjective; several have an s more, or an es after a hiss.
    """
    ending = "" if number == 1 else "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number:,} {noun}{ending}"


def sentence(clause: str) -> str:
    """A clause with a capital at its beginning and a full stop at its end."""
    return f"{clause[:1].upper()}{clause[1:]}."


def listed(names: Sequence[str]) -> str:
    """Names in a row: ``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
