"""``wastenot`` on the stand-in: ``python -m testbed.stand_in.program ARGUMENTS``, where STAND_IN_NVML names the server.

NVML is the stand-in's already, by ``shim/pynvml``. What this adds is the rest of a machine with a GPU: tasks run on the
simulated GPUs, whose time is virtual unless STAND_IN_WALL is set; PyTorch sees them; and the user is root, or an ordinary
one where STAND_IN_USER is set. Numbers are marked as simulated, which they are, although the program takes the GPUs for real
ones.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from testbed.stand_in.held_time import SharedTime
from testbed.stand_in.launcher import StandInLauncher, StandInTime
from testbed.stand_in.library import SOCKET_VARIABLE
from wastenot.cli.main import run
from wastenot.devices.common import machine
from wastenot.devices.common.rights import Rights
from wastenot.devices.nvidia.device import NvidiaDevice

WALL_VARIABLE, USER_VARIABLE = "STAND_IN_WALL", "STAND_IN_USER"


def main() -> int:
    """Run the program."""
    if WALL_VARIABLE in os.environ and sys.argv[1:2] == ["apply"]:
        from wastenot.control import session

        session.time = SharedTime(os.environ[SOCKET_VARIABLE])  # type: ignore[assignment]
    with on_stand_in():
        return run(sys.argv[1:])


@contextmanager
def on_stand_in() -> Iterator[None]:
    """What this process takes for a machine with GPUs, until the context is left, is the stand-in."""
    socket = os.environ[SOCKET_VARIABLE]
    made = NvidiaDevice.__init__

    def init(self: NvidiaDevice, nvml: Any, handle: Any, name: str, **parts: Any) -> None:
        made(self, nvml, handle, name, **parts)
        index = int(nvml.call("nvmlDeviceGetIndex", handle))
        self.identity = dataclasses.replace(self.identity, origin="simulated")
        self.time = StandInTime(socket, index, wall=WALL_VARIABLE in os.environ)
        self._launcher = lambda _: StandInLauncher(socket, index)

    root = USER_VARIABLE not in os.environ
    with (
        mock.patch.object(NvidiaDevice, "__init__", init),
        mock.patch.object(machine, "rights_here", lambda: Rights(root, root, None, None)),
        mock.patch.object(machine, "_torch", _torch),
    ):
        yield


def _torch() -> machine.FoundTorch:
    """A PyTorch that sees every GPU."""
    import pynvml

    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    uuids = {pynvml.nvmlDeviceGetUUID(one).removeprefix("GPU-"): place for place, one in enumerate(handles)}
    return machine.FoundTorch("2.9.1", "CUDA 12.8", uuids)


if __name__ == "__main__":
    sys.exit(main())
