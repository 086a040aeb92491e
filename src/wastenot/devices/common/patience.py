"""Calls that may never return, such as those of a driver that hangs, made so that their caller need not wait for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from wastenot.core.errors import DeviceError

T = TypeVar("T")
PATIENCE_S = 5.0
"""For a driver's call, which takes milliseconds, or a second or two where the driver has to be loaded first."""


class NoAnswerError(DeviceError):
    """A call has not returned in time; it may still do, and do what it does."""


def answers(calls: Sequence[Callable[[], T]], patience_s: float | None = PATIENCE_S) -> list[T | Exception]:
    """What each call returned or raised; NoAnswerError for one that has not returned in time.

    Args:
        calls: to make.
        patience_s: to wait for all of them, each made in a thread of its own, which does not keep the process from ending;
            ``None`` to make one after another in this thread.
    """
    found: list[T | Exception] = [NoAnswerError(f"the driver has not answered for {patience_s or 0.0:g} s") for _ in calls]

    def make(place: int) -> None:
        try:
            found[place] = calls[place]()
        except Exception as error:
            found[place] = error

    if patience_s is None:
        for place in range(len(calls)):
            make(place)
        return found
    threads = [threading.Thread(target=make, args=(place,), daemon=True) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    until_s = time.monotonic() + patience_s
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return list(found)
