"""What tests do to the stand-in behind NVML's back: faults, truth, virtual time, other people's processes, tasks."""

from __future__ import annotations

import time
from contextlib import suppress

from testbed.stand_in.codes import Code
from testbed.stand_in.faults import Fault
from testbed.stand_in.state import GpuState
from testbed.stand_in.wire import Client
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Lap, Task
from wastenot.devices.simulated.physics import OperatingPoint


class Control:
    """A test's own line to the server.

    Args:
        socket: path of the server's.
    """

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self._client = Client(socket)
        self._tasks: dict[int, int] = {}

    def state(self, index: int = 0) -> GpuState:
        """A GPU as it truly is."""
        state: GpuState = self._client.request("state", index)
        return state

    def request_place(self, unique_id: str) -> int:
        """Place of a GPU among the server's, by its unique ID as wastenot knows it."""
        place: int = self._client.request("place", unique_id)
        return place

    def reset(self) -> None:
        """Fresh GPUs with nothing locked and nothing running, no faults, time from the beginning."""
        self._tasks.clear()
        self._client.request("reset")

    def fault(
        self,
        function: str,
        error: str | None = None,
        *,
        times: int | None = None,
        delay_s: float = 0.0,
        after: int = 0,
        index: int | None = None,
        takes_effect: bool = False,
        hangs: bool = False,
    ) -> None:
        """Let calls fail, or be slow.

        Args:
            function: its name in ``pynvml``, or a pattern such as ``nvmlDeviceSet*``; ``nvmlInit`` is one too.
            error: such as ``NO_PERMISSION``; ``None`` for calls that are only slow.
            times: for so many calls; ``None`` until :meth:`clear_faults`.
            delay_s: that a call takes longer.
            after: so many calls still go well first.
            index: of the GPU; ``None`` for all.
            takes_effect: the call does what it does, and yet returns the error.
            hangs: calls are not served until :meth:`clear_faults`; then they are.
        """
        code = None if error is None else Code[error.removeprefix("NVML_ERROR_")]
        self._client.request("fault", Fault(function, code, times, delay_s, after, index, takes_effect, hangs))

    def hanging(self) -> int:
        """How many calls hang."""
        calls: int = self._client.request("hanging")
        return calls

    def clear_faults(self) -> None:
        """Everything works again, what was lost is found, and clocks arrive."""
        self._client.request("clear_faults")

    def clock_never_arrives(self, never: bool = True) -> None:
        """Clocks that are asked for do not take effect, or do again."""
        self._client.request("clock_never_arrives", never)

    def gpu_lost(self, index: int = 0) -> None:
        """A GPU falls off the bus, until :meth:`clear_faults`."""
        self._client.request("gpu_lost", index)

    def mig(self, enabled: bool = True, index: int = 0) -> None:
        """Turn a GPU's MIG mode on or off."""
        self._client.request("mig", index, enabled)

    def foreign_process(self, process: int, memory_bytes: int, index: int = 0) -> None:
        """Show another process on a GPU; with 0 bytes it is gone."""
        self._client.request("foreign_process", index, process, memory_bytes)

    def enforce_instead(self, number: int | None, index: int = 0) -> None:
        """Let the board's management controller request a workload power profile, which wins; ``None`` for none."""
        self._client.request("enforce_instead", index, number)

    def keep_awake(self, watts: float, index: int = 0) -> None:
        """Let an idle GPU draw so much more than at rest, at its highest clocks; 0 lets it rest."""
        self._client.request("keep_awake", index, watts)

    def advance(self, seconds: float) -> None:
        """Let time pass: at once where it is virtual."""
        self._client.request("advance", seconds)

    def truth(
        self, task: Task, setting: Setting = AUTO, *, index: int = 0, temperature_c: float | None = None
    ) -> OperatingPoint:
        """What a task takes at a setting, exactly.

        Args:
            task: to run.
            setting: requested.
            index: of the GPU.
            temperature_c: of the GPU; by default that at which its parameters are stated.
        """
        point: OperatingPoint = self._client.request("truth", index, task, setting, temperature_c)
        return point

    def wait_for(self, process: int) -> None:
        """Wait until all that a dead process asked for is done: a driver's call ends before its caller can die."""
        while True:
            client = Client(self.socket)  # accepted after whatever the process had connected
            busy = client.request("connected", process)
            client.close()
            if not busy:
                return
            time.sleep(1e-4)

    def run_task(self, task: Task, index: int = 0) -> None:
        """Run a task until :meth:`stop_task`, or until this process ends."""
        self._tasks[index] = self._client.request("start", index, task)

    def stop_task(self, index: int = 0) -> tuple[Lap, ...]:
        """End it."""
        laps: tuple[Lap, ...] = self._client.request("end", self._tasks.pop(index))
        return laps

    def close(self) -> None:
        """Hang up; tasks that it began end."""
        with suppress(OSError):
            self._client.close()
