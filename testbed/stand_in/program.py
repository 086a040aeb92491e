"""``wastenot`` on the stand-in: ``python -m testbed.stand_in.program ARGUMENTS``; STAND_IN_NVML or STAND_IN_AMDSMI names it.

NVML is the stand-in's already, by ``shim/pynvml``, and so is AMD SMI. What this adds is the rest of a machine with a GPU:
tasks run on the simulated GPUs, whose time is virtual unless STAND_IN_WALL is set; PyTorch sees them; and the user is root,
or an ordinary one where STAND_IN_USER is set. Numbers are marked as simulated, which they are, although the program takes
the GPUs for real ones.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from testbed.stand_in.amd_library import SOCKET_VARIABLE as AMD_SOCKET_VARIABLE
from testbed.stand_in.held_time import SharedTime
from testbed.stand_in.launcher import StandInLauncher, StandInTime
from testbed.stand_in.library import SOCKET_VARIABLE
from testbed.stand_in.wire import Client
from wastenot.cli.main import run
from wastenot.core.vendors import bare_unique_id, vendor_named
from wastenot.devices.common import machine
from wastenot.devices.common.gpu_driver import driver_of
from wastenot.devices.common.rights import Rights
from wastenot.devices.protocol import Identity
from wastenot.devices.torch.gpu import TorchGpu

WALL_VARIABLE, USER_VARIABLE = "STAND_IN_WALL", "STAND_IN_USER"
UNIT_VARIABLE = "STAND_IN_UNIT_S"  # for how long memory traffic is looked at before a unit of it is chosen


def main() -> int:
    """Run the program."""
    if WALL_VARIABLE in os.environ and sys.argv[1:2] in (["apply"], ["tune"]):
        from wastenot.control import session, traffic

        traffic._FIRST_S = float(os.environ.get(UNIT_VARIABLE, traffic._FIRST_S))

        session.time = SharedTime(_socket())  # type: ignore[assignment]
    with on_stand_in():
        return run(sys.argv[1:])


@contextmanager
def on_stand_in() -> Iterator[None]:
    """What this process takes for a machine with GPUs, until the context is left, is the stand-in."""
    socket = _socket()
    made = TorchGpu.__init__

    def init(self: TorchGpu, identity: Identity, *others: Any, **parts: Any) -> None:
        made(self, dataclasses.replace(identity, origin="simulated"), *others, **parts)
        index = Client(socket).request("place", identity.unique_id)
        self.time = StandInTime(socket, index, wall=WALL_VARIABLE in os.environ)
        self._launcher = lambda _: StandInLauncher(socket, index)

    root = USER_VARIABLE not in os.environ
    with (
        mock.patch.object(TorchGpu, "__init__", init),
        mock.patch.object(machine, "rights_here", lambda: Rights(root, root, None, None)),
        mock.patch.object(machine, "_torch", _torch),
    ):
        yield


def _socket() -> str:
    return os.environ.get(SOCKET_VARIABLE) or os.environ[AMD_SOCKET_VARIABLE]


def _torch() -> machine.FoundTorch:
    """A PyTorch that sees every GPU."""
    vendor = vendor_named("amd:0" if AMD_SOCKET_VARIABLE in os.environ else "nvidia:0")
    assert vendor is not None
    driver = driver_of(vendor)
    ids = {bare_unique_id(driver.unique_id(place)): place for place in range(driver.count())}
    return machine.FoundTorch("2.9.1", "HIP 7.0" if vendor.name == "amd" else "CUDA 12.8", ids)


if __name__ == "__main__":
    sys.exit(main())
