"""Who calls the stand-in, and what runs on its GPUs."""

from __future__ import annotations

import socket
import struct

from testbed.stand_in.gpu import Gpu
from wastenot.devices.simulated.device import SimulatedRun


class Caller:
    """A program at the other end.

    Attributes:
        process: its id.
        runs: that it has begun and not ended.
    """

    def __init__(self, connection: socket.socket) -> None:
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.process = struct.unpack("3i", peer)[0]
        self.runs: list[int] = []


class GpuRun(SimulatedRun):
    """A run that the GPU knows of."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(gpu.engine)
        self._gpu = gpu

    @property
    def progress(self) -> float:
        """Calls until now, with the fraction of the current one."""
        self._engine.advance(0.0)
        return self._engine.progress()

    def end(self) -> None:
        """Stop the task."""
        self._laps = self._gpu.stop(self._marks)
