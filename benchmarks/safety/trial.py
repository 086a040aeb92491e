"""What a trial of safety found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial found.

    Attributes:
        count: how often something was tried.
        failed: what failed, a line each.
        numbers: what else was counted or measured, by names with units.
    """

    count: int
    failed: Sequence[str] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
