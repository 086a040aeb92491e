"""NVML's masks of workload power profiles: 255 bits in words of 32, whose places are the profiles' numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_WORD = 32


def members(mask: Any) -> list[int]:
    """Numbers that a mask holds, ascending."""
    return [_WORD * place + bit for place, word in enumerate(mask.mask) for bit in range(_WORD) if word >> bit & 1]


def set_members(mask: Any, numbers: Iterable[int]) -> None:
    """Put numbers into a mask."""
    for number in numbers:
        mask.mask[number // _WORD] |= 1 << number % _WORD
