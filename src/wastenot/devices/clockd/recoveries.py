"""Restoring what dead processes left changed, while the daemon runs: what cannot be restored is told, and tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wastenot.devices.clockd.log_lines import Log, Repeats
from wastenot.devices.common.gpu_driver import ClockSetter
from wastenot.devices.common.recovery import Recovered, recover


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
        self._log, self._find, self._which, self._repeats = log, find, which, Repeats(now_s)
        self._left: dict[str, str] = {}  # why those that stay changed do

    def recover(self) -> None:
        """Restore them, in this thread."""
        done = recover(self._find, self._which, patience_s=None)
        log_recovered(done, self._log)
        self._left = {uuid: str(error) for uuid, error in done.failed.items()}
        for uuid, why in self._left.items():
            if self._repeats.is_news(uuid, why):
                self._log("cannot restore", gpu=uuid, error=why)

    def status(self) -> dict[str, Any]:
        """By UUID, why GPUs stay changed."""
        return {uuid: {"unrestored": True, "why": why} for uuid, why in self._left.items() if uuid}


def log_recovered(done: Recovered, log: Log) -> None:
    """Log the GPUs that were restored after their processes had died."""
    for left in done.restored:
        more = {} if left.unreadable is None else {"journal": left.unreadable}
        what = "restored" if left.this_boot else "forgotten"
        log(what, gpu=left.uuid, left_by=left.holder, to=left.outcome, **more)
