"""Restoring what dead processes left changed, while the daemon runs: what cannot be restored is told, and tried again."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from wastenot.devices.clockd.log_lines import Log
from wastenot.devices.common.gpu_driver import ClockSetter
from wastenot.devices.common.recovery import Recovered, recover

_LOGGED_S = 60.0  # between two lines that say the same of a GPU that cannot be restored


class Recoveries:
    """The recoveries of some GPUs.

    Args:
        now_s: the clock.
        log: takes what happened, and fields.
        find: by unique ID, what may change a GPU's clocks.
        which: whether a GPU is one of them, by unique ID.
    """

    def __init__(
        self, now_s: Callable[[], float], log: Log, find: Callable[[str], ClockSetter], which: Callable[[str], bool]
    ) -> None:
        self._now_s, self._log, self._find, self._which = now_s, log, find, which
        self._left = dict[str, tuple[str, float]]()  # those that stay changed: why, and when that was logged

    def recover(self) -> None:
        """Restore them, in this thread."""
        done, now_s, left = recover(self._find, self._which, patience_s=None), self._now_s(), dict[str, tuple[str, float]]()
        log_recovered(done, self._log)
        for uuid, error in done.failed.items():
            why, at_s = self._left.get(uuid, ("", -inf))
            if str(error) != why or now_s - at_s >= _LOGGED_S:
                self._log("cannot restore", gpu=uuid, error=error)
                at_s = now_s
            left[uuid] = (str(error), at_s)
        self._left = left

    def status(self) -> dict[str, Any]:
        """By UUID, why GPUs stay changed."""
        return {uuid: {"unrestored": True, "why": why} for uuid, (why, _) in self._left.items() if uuid}


def log_recovered(done: Recovered, log: Log) -> None:
    """Log the GPUs that were restored after their processes had died."""
    for left in done.restored:
        more = {} if left.unreadable is None else {"journal": left.unreadable}
        log("restored", gpu=left.uuid, left_by=left.holder, to=left.restore.outcome, **more)
