"""Whether a GPU runs at or below the clocks that it was asked for: drivers have accepted a limit and not kept it."""

from __future__ import annotations

from collections import deque

_WINDOW_S = 30.0  # many times as long as clocks take to switch
_LEAST = 10  # readings of it
_ABOVE = 1.02  # of what was asked for: clocks are read in steps
_BECAUSE = (
    "the driver accepts the clock and does not keep it, or another program resets it (a monitoring agent, nvidia-smi -rgc)"
)


class Obeyed:
    """Compares the core clock in effect with the ceilings asked for.

    A clock below its ceiling does not count: a power or thermal limit holds it, or the GPU rests. Over the last half minute,
    even the lowest clock must have been above the highest ceiling, so that switches under way do not count. Readings at the
    default clocks are left out.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float, float]] = deque()
        self._told = False

    def look(self, now_s: float, asked_mhz: float | None, core_mhz: float | None) -> str | None:
        """Take a reading in; what to tell, once.

        Args:
            now_s: of the reading.
            asked_mhz: the ceiling in force; ``None`` for the default clocks.
            core_mhz: the clock in effect; ``None`` where the GPU does not report it.
        """
        if asked_mhz is None or core_mhz is None or self._told:
            return None
        self._seen.append((now_s, asked_mhz, core_mhz))
        while now_s - self._seen[0][0] > _WINDOW_S:
            self._seen.popleft()
        if now_s - self._seen[0][0] < 0.8 * _WINDOW_S or len(self._seen) < _LEAST:
            return None
        ceiling_mhz, lowest_mhz = max(asked for _, asked, _ in self._seen), min(clock for *_, clock in self._seen)
        if lowest_mhz <= _ABOVE * ceiling_mhz:
            return None
        self._told = True
        ran = f"it has run at {lowest_mhz:.0f} MHz or more for half a minute"
        return f"asked for at most {ceiling_mhz:.0f} MHz, {ran}: {_BECAUSE}"
