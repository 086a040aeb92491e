"""The time of real GPUs."""

from __future__ import annotations

import time


class WallTime:
    """Wall-clock time."""

    def now_s(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
