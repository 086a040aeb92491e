"""``wastenot`` on the stand-in: ``python -m tests.stand_in.program ARGUMENTS``, where STAND_IN_NVML names the server.

NVML is the stand-in's already, by ``shim/pynvml``. What this adds is what CUDA would be on a real GPU: tasks run on the
simulated GPUs, whose time is virtual unless STAND_IN_WALL is set. Numbers are then marked as simulated, which they are, although
everything else takes the GPUs for real ones.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

from tests.stand_in.launcher import StandInLauncher, StandInTime
from tests.stand_in.library import SOCKET_VARIABLE
from wastenot.cli.main import run
from wastenot.devices.nvidia.device import NvidiaDevice

WALL_VARIABLE = "STAND_IN_WALL"


def main() -> int:
    """Run the program."""
    socket = os.environ[SOCKET_VARIABLE]
    made = NvidiaDevice.__init__

    def on_stand_in(self: NvidiaDevice, nvml: Any, handle: Any, name: str, **parts: Any) -> None:
        made(self, nvml, handle, name, **parts)
        index = int(nvml.call("nvmlDeviceGetIndex", handle))
        self.identity = dataclasses.replace(self.identity, origin="simulated")
        self.time = StandInTime(socket, index, wall=WALL_VARIABLE in os.environ)
        self._launcher = lambda _: StandInLauncher(socket, index)

    NvidiaDevice.__init__ = on_stand_in  # type: ignore[method-assign]
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
