"""Words that depend on numbers."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and what it counts: ``1 kernel``, ``46 kernels``, ``2 passes``.

    Args:
        number: of things; thousands are separated.
        noun: one of them, perhaps after an adjective.
        plural: several; by default with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
