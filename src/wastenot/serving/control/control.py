"""The controller of servers: waits for readings, sets a clock after each, and looks after those that are not heard of.

    servers ── metrics ──▶ source (a thread) ── queue ──▶ controller (the main thread) ── requests ──▶ GPUs

Clocks are only set in the main thread, which holds the GPUs' leases: however it ends, what was changed is undone on the way
out, and by wastenotd, the keeper or the next command where there is no way out.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from wastenot.core.errors import ClocksRefusedError
from wastenot.core.processes import terminate
from wastenot.serving.control.instance import Instance
from wastenot.serving.control.keeper import kept
from wastenot.serving.control.sources import Heard

TICK_S = 0.25
"""The longest wait between two looks at what has not been heard of."""


@contextmanager
def held(instances: Sequence[Instance]) -> Iterator[None]:
    """Hold the clocks of all devices inside the context, and give all back however it ends.

    Raises:
        ClocksRefusedError: this process may not set the clocks of a device.
        DeviceError: another process controls them.
    """
    devices = [device for instance in instances for device in instance.devices]
    for device in devices:
        why = device.clocks.refusal()
        if why is not None:
            raise ClocksRefusedError(f"{device.identity.name}: clocks cannot be changed: {why}")
    with _terminated_by_signals(), kept(devices), ExitStack() as stack:
        for device in devices:
            stack.callback(device.clocks.release)
            stack.enter_context(device.clocks.claimed())
        yield


def control(
    instances: Sequence[Instance],
    heard: queue.SimpleQueue[Heard],
    *,
    stop: Callable[[], bool] = lambda: False,
    each_tick: Callable[[float], None] = lambda now_s: None,
) -> None:
    """Control instances until told to stop.

    Args:
        instances: in the order in which the source counts them.
        heard: what the source hears.
        stop: whether to; asked several times a second.
        each_tick: called as often, with the time of ``time.monotonic``.
    """
    checked_s = time.monotonic()
    while not stop():
        for one in _latest(heard, max(checked_s + TICK_S - time.monotonic(), 0.0)):
            instances[one.instance].hear(one, time.monotonic())
        now_s = time.monotonic()
        if now_s >= checked_s + TICK_S:
            checked_s = now_s
            for instance in instances:
                instance.check(now_s)
            each_tick(now_s)


def _latest(heard: queue.SimpleQueue[Heard], wait_s: float) -> list[Heard]:
    """The latest of each instance that is there, or that comes within a time: what is older is of no use by then."""
    found: dict[int, Heard] = {}
    with suppress(queue.Empty):
        one = heard.get(timeout=wait_s)
        while True:
            found[one.instance] = one
            one = heard.get_nowait()
    return list(found.values())


@contextmanager
def _terminated_by_signals() -> Iterator[None]:
    """Signals that would end the process raise inside the context, so that all leases end in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, terminate) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
