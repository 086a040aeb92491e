"""What a saving becomes where something that was assumed is otherwise: each assumption is changed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

IDLE_W = 30.0
"""By which the idle power of a GPU may be off: an H200 draws 80 W without a process, 120 W with one that does nothing."""


@dataclass(frozen=True, slots=True)
class Varied:
    """A saving with one assumption changed.

    Attributes:
        what: was changed, in words.
        saved: with the change; ``None`` where there is no plan that meets the deadlines.
        failed: whether too few requests met their deadlines.
    """

    what: str
    saved: float | None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """A headline's saving as it was found, and with each assumption changed.

    Attributes:
        policy: that saves.
        low: the smallest saving.
        high: the largest where deadlines are met.
        varied: the changes.
    """

    policy: str
    low: float
    high: float
    varied: tuple[Varied, ...]


def band(policy: str, saved: float, varied: Sequence[Varied]) -> Band:
    """From the saving as it was found, and with changes."""
    some = [(each.saved, each.failed) for each in varied if each.saved is not None]
    high = max([saved, *(each for each, failed in some if not failed)])
    return Band(policy, min([saved, *(each for each, _ in some)]), high, tuple(varied))


def idle_varied(first: tuple[float, float], other: tuple[float, float]) -> tuple[Varied, Varied]:
    """A saving with other idle power and all decisions as they were, which needs no other run.

    Args:
        first: what savings are against: energy in joules, and GPU-seconds without work, parked ones included.
        other: the same of what saves.
    """

    def saved(more_w: float) -> float:
        before_j, after_j = (energy_j + more_w * idle_s for energy_j, idle_s in (first, other))
        return 1 - after_j / before_j

    return Varied(f"idle power {IDLE_W:g} W lower", saved(-IDLE_W)), Varied(f"{IDLE_W:g} W higher", saved(IDLE_W))
