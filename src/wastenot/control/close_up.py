"""The latest iterations of a run in full: when passes began and clocks were requested. It forgets what is older."""

from __future__ import annotations

from collections import deque

from wastenot.control.status import Instant
from wastenot.core.setting import Setting

_MOST = 300


class CloseUp:
    """Instants of the first GPU, the latest ones."""

    def __init__(self) -> None:
        self._instants: deque[tuple[float, str | None, bool, Setting]] = deque(maxlen=_MOST)

    def marker(self, at_s: float, name: str, target: Setting, *, at_default: bool) -> None:
        """Something began; a layer's turn is left out."""
        if ":" not in name:
            self._instants.append((at_s, name, at_default, target))

    def request(self, at_s: float, target: Setting, *, at_default: bool) -> None:
        """Clocks were requested."""
        self._instants.append((at_s, None, at_default, target))

    def instants(self) -> tuple[Instant, ...]:
        """Those kept, in order."""
        return tuple(
            Instant(
                at_s=max(at_s, 0.0),
                marker=name,
                at_default=at_default,
                target_core_mhz=target.core_mhz,
                target_memory_mhz=target.memory_mhz,
                target_power_limit_w=target.power_limit_w,
            )
            for at_s, name, at_default, target in sorted(self._instants, key=lambda each: each[0])
        )
