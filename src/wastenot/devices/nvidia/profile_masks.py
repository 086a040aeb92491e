"""NVML's masks of workload power profiles: 255 bits in words of 32, whose places are the profiles' numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_PREFIX, _WORD, _BITS = "NVML_POWER_PROFILE_", 32, 256


def names_of(library: Any) -> Sequence[str]:
    """Names of the profiles by number, from the constants of the binding: ``max-q``; ``profile-37`` where it has none."""
    names = [f"profile-{number}" for number in range(_BITS)]
    for constant, number in vars(library).items():
        if constant.startswith(_PREFIX) and not constant.startswith(f"{_PREFIX}OPERATION"):
            names[number] = constant.removeprefix(_PREFIX).lower().replace("_", "-")
    return names


def members(mask: Any) -> list[int]:
    """Numbers that a mask holds, ascending."""
    return [_WORD * place + bit for place, word in enumerate(mask.mask) for bit in range(_WORD) if word >> bit & 1]


def set_members(mask: Any, numbers: Iterable[int]) -> None:
    """Put numbers into a mask."""
    for number in numbers:
        mask.mask[number // _WORD] |= 1 << number % _WORD
