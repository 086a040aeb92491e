"""A child process that outlives a controller which is killed, and gives back the clocks that it held.

Nothing can be undone by a process that gets SIGKILL. Where wastenotd sets the clocks it notices; where the controller sets
them itself, its journals say what to undo, and this child does so at once rather than the next command some time later.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from wastenot.devices.common.clocks import LeasedClocks
from wastenot.devices.protocol import Device

_PATIENCE_S = 10.0  # until all that the dead process had open is closed
_PAUSE_S = 0.05


@contextmanager
def kept(devices: Sequence[Device]) -> Iterator[None]:
    """Run a keeper inside the context where this process sets clocks of real GPUs itself."""
    if not any(isinstance(device.clocks, LeasedClocks) for device in devices):
        yield
        return
    # Its input ends when this process does, however that is.
    command = [sys.executable, "-m", "wastenot.serving.control.keeper"]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert keeper.stdin is not None
    try:
        yield
    finally:
        with suppress(OSError):
            keeper.stdin.write(b"done")
            keeper.stdin.close()
        keeper.wait(_PATIENCE_S)


def main() -> None:
    """Wait until the input ends, and unless it says that all is done, restore what dead processes left changed."""
    from wastenot.core.errors import WastenotError
    from wastenot.devices.common.journal import journals
    from wastenot.devices.common.recovery import put_right

    if sys.stdin.buffer.read() == b"done":
        return
    until_s = time.monotonic() + _PATIENCE_S
    while journals() and time.monotonic() < until_s:
        with suppress(WastenotError):
            put_right()
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
