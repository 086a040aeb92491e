"""The process that holds the stand-in GPUs: ``python -m testbed.stand_in.server SOCKET PRESET [--gpus N] [--wall]``."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import socket
import sys
import threading
import traceback
from contextlib import AbstractContextManager
from typing import Any

from testbed.stand_in import amd_functions
from testbed.stand_in.codes import Code, Refused
from testbed.stand_in.faults import Fault, Faults
from testbed.stand_in.functions import cost_s, functions_of
from testbed.stand_in.gpu import Gpu
from testbed.stand_in.runs import Caller, GpuRun
from testbed.stand_in.state import GpuState, SetterCall, state_of
from testbed.stand_in.timing import Timing, VirtualTiming, WallTiming
from testbed.stand_in.wire import receive, send
from wastenot.core.errors import DeviceError
from wastenot.core.setting import Setting
from wastenot.devices.protocol import Lap, Task
from wastenot.devices.simulated.device import SimulatedLauncher
from wastenot.devices.simulated.preset import Preset, find_preset
from wastenot.devices.tracer import Load, Trace, TracedRun
from wastenot.meters.tasks import find_tasks
from wastenot.workloads.shape import Shape

DRIVER, NVML, CUDA = "580.159.04", "13.580.159.04", 13000
_SYSTEM = {
    "nvmlSystemGetDriverVersion": DRIVER,
    "nvmlSystemGetNVMLVersion": NVML,
    "nvmlSystemGetCudaDriverVersion": CUDA,
    "nvmlInit": None,
    "nvmlShutdown": None,
    "amdsmi_init": None,
}


class Server:
    """The stand-in GPUs, and what may be asked of them. A public method is a request of the same name.

    Args:
        preset: of all GPUs.
        gpus: how many.
        wall: live in real time; otherwise in virtual time.
        seed: of the noise; each GPU's own is so many after it.
        memory_lock: whether memory clocks can be locked; by default as on the real board.
    """

    def __init__(self, preset: Preset, gpus: int, wall: bool, seed: int, memory_lock: bool | None) -> None:
        self._recipe = (preset, gpus, wall, seed, memory_lock)
        self._lock = threading.Lock()
        self._faults = Faults()
        self._setting = [threading.Lock() for _ in range(gpus)]  # a setter at a time, to its end, as in a driver
        self._numbers = itertools.count(1)
        self._callers: list[Caller] = []
        self._make()

    def _make(self) -> None:
        preset, gpus, wall, seed, memory_lock = self._recipe
        self._runs: dict[int, GpuRun] = {}
        self._traces: dict[int, tuple[AbstractContextManager[TracedRun], TracedRun]] = {}
        self._timing: Timing = WallTiming() if wall else VirtualTiming()
        self._gpus = [Gpu(preset, index, seed, self._timing, memory_lock, gpus) for index in range(gpus)]
        self._functions = [{**functions_of(gpu), **amd_functions.functions_of(gpu)} for gpu in self._gpus]

    # ---- NVML ------------------------------------------------------------------------------------------------

    def nvml(self, caller: Caller, name: str, index: int | None, arguments: tuple[Any, ...]) -> tuple[int, Any]:
        """Serve a function of NVML or AMD SMI: its return code, in NVML's numbers, and value."""
        changes = name.startswith(("nvmlDeviceSet", "nvmlDeviceReset", "nvmlDeviceWorkloadPowerProfileUpdate", "amdsmi_set"))
        if index is not None and not 0 <= index < len(self._gpus):
            return Code.INVALID_ARGUMENT, None
        with self._setting[index] if changes and index is not None else contextlib.nullcontext():
            fault = self._faults.take(name, index)
            if fault is not None and fault.hangs:
                self._faults.hang()
            if fault is not None and fault.delay_s:
                self._timing.spend(fault.delay_s)
            code, value = self._faulty(fault, name, index, arguments)
            if changes and index is not None:
                error = None if code == Code.SUCCESS else Code(code).name
                self._gpus[index].setters.append(SetterCall(name, arguments, error, caller.process))
            return int(code), value

    def _faulty(self, fault: Fault | None, name: str, index: int | None, arguments: tuple[Any, ...]) -> tuple[Code, Any]:
        if fault is not None and fault.code is not None and not fault.takes_effect:
            return fault.code, None
        try:
            value = self._serve(name, index, arguments)
        except Refused as refusal:
            return refusal.code, None
        except DeviceError:
            return Code.UNKNOWN, None
        return (Code.SUCCESS, value) if fault is None or fault.code is None else (fault.code, None)

    def _serve(self, name: str, index: int | None, arguments: tuple[Any, ...]) -> Any:
        if index is None:
            with self._lock:
                return self._system(name, *arguments)
        gpu = self._gpus[index]
        if gpu.lost:
            raise Refused(Code.GPU_IS_LOST)
        self._timing.spend(cost_s(gpu, name, arguments))
        with self._lock:
            return self._functions[index][name](*arguments)

    def _system(self, name: str, *arguments: Any) -> Any:
        if name == "nvmlDeviceGetCount":
            return len(self._gpus)
        if name == "nvmlDeviceGetHandleByIndex":
            return self._handle([gpu for gpu in self._gpus if gpu.index == arguments[0]], Code.INVALID_ARGUMENT)
        if name == "nvmlDeviceGetHandleByUUID":
            return self._handle([gpu for gpu in self._gpus if gpu.uuid == arguments[0]], Code.NOT_FOUND)
        if name == "nvmlDeviceGetHandleByPciBusId":
            tail = arguments[0].upper()
            matching = [gpu for gpu in self._gpus if len(tail) >= 7 and gpu.bus_id.endswith(tail)]
            return self._handle(matching, Code.NOT_FOUND)
        return _SYSTEM[name]

    @staticmethod
    def _handle(found: list[Gpu], otherwise: Code) -> int:
        """Handles are places, counted from 1."""
        if not found:
            raise Refused(otherwise)
        if found[0].lost:
            raise Refused(Code.GPU_IS_LOST)
        return found[0].index + 1

    # ---- control ---------------------------------------------------------------------------------------------

    def state(self, caller: Caller, index: int) -> GpuState:
        """A GPU as it truly is."""
        with self._lock:
            return state_of(self._gpus[index])

    def place(self, caller: Caller, unique_id: str) -> int:
        """Place of a GPU among the server's, by its unique ID as wastenot knows it."""
        return next(gpu.index for gpu in self._gpus if unique_id in (gpu.uuid, amd_functions.unique_id(gpu)))

    def reset(self, caller: Caller) -> None:
        """Fresh GPUs, no faults."""
        self._faults.clear()
        with contextlib.ExitStack() as held:
            for lock in (*self._setting, self._lock):
                held.enter_context(lock)
            self._make()

    def connected(self, caller: Caller, process: int) -> bool:
        """Whether anything that a process asked for may still be done."""
        return any(other.process == process for other in tuple(self._callers))

    def fault(self, caller: Caller, fault: Fault) -> None:
        """A fault from now on."""
        self._faults.add(fault)

    def hanging(self, caller: Caller) -> int:
        """How many calls hang."""
        return self._faults.hanging

    def clear_faults(self, caller: Caller) -> None:
        """No more faults; GPUs are found again and clocks arrive."""
        with self._lock:
            self._faults.clear()
            for gpu in self._gpus:
                gpu.lost = False
                if gpu.arrival.never:
                    gpu.never_arrive(False)

    def clock_never_arrives(self, caller: Caller, never: bool) -> None:
        """Clocks that are asked for do not take effect."""
        with self._lock:
            for gpu in self._gpus:
                gpu.never_arrive(never)

    def gpu_lost(self, caller: Caller, index: int) -> None:
        """A GPU falls off the bus."""
        self._gpus[index].lost = True

    def mig(self, caller: Caller, index: int, enabled: bool) -> None:
        """MIG mode of a GPU."""
        self._gpus[index].mig = enabled

    def foreign_process(self, caller: Caller, index: int, process: int, memory_bytes: int) -> None:
        """Another process on a GPU; 0 bytes: it has gone."""
        with self._lock:
            self._gpus[index].foreign[process] = memory_bytes
            if not memory_bytes:
                del self._gpus[index].foreign[process]

    def enforce_instead(self, caller: Caller, index: int, number: int | None) -> None:
        """A profile that the board's management controller requests of a GPU."""
        with self._lock:
            self._gpus[index].profiles.instead = number

    def keep_awake(self, caller: Caller, index: int, watts: float) -> None:
        """An idle GPU draws more than at rest."""
        with self._lock:
            self._gpus[index].keep_awake(watts)

    def advance(self, caller: Caller, seconds: float) -> None:
        """Let time pass: at once where it is virtual."""
        self._timing.spend(seconds)
        with self._lock:
            for gpu in self._gpus:
                gpu.engine.advance(0.0)

    def now_s(self, caller: Caller, index: int) -> float:
        """Seconds that a GPU has lived."""
        with self._lock:
            self._gpus[index].engine.advance(0.0)
            return self._gpus[index].engine.now_s

    def clock(self, caller: Caller) -> float:
        """Seconds since some moment, whatever GPU."""
        return self._timing.now_s()

    def hold(self, caller: Caller) -> float:
        """Wall time passes only as the caller lets it, until it hangs up; now."""
        return self._wall.hold(caller)

    def let_pass(self, caller: Caller, seconds: float) -> float:
        """Let time pass that the caller holds; now."""
        return self._wall.let_pass(caller, seconds)

    @property
    def _wall(self) -> WallTiming:
        assert isinstance(self._timing, WallTiming), "virtual time passes only when it is let, whoever holds it"
        return self._timing

    def truth(self, caller: Caller, index: int, task: Task, setting: Setting, temperature_c: float | None) -> Any:
        """What a task takes, exactly."""
        gpu = self._gpus[index]
        at_c = gpu.preset.thermal.reference_c if temperature_c is None else temperature_c
        with self._lock:
            return gpu.engine.physics.operating_point(task, setting, at_c)

    # ---- tasks -----------------------------------------------------------------------------------------------

    def can_run(self, caller: Caller, index: int, task: Task, setting: Setting) -> bool:
        """Whether a GPU knows a task at a setting."""
        with self._lock:
            return SimulatedLauncher(self._gpus[index].engine).can_run(task, setting)

    def start(self, caller: Caller, index: int, task: Task) -> int:
        """Run a task until the caller ends it or hangs up; the number of the run."""
        with self._lock:
            gpu = self._gpus[index]
            if gpu.lost:
                raise DeviceError("the GPU is lost")
            if gpu.task is not None:
                raise DeviceError(f"'{gpu.task.name}' runs already; the stand-in runs a task at a time")
            gpu.start(task, caller.process)
            number = next(self._numbers)
            self._runs[number] = GpuRun(gpu)
            caller.runs.append(number)
            return number

    def train(self, caller: Caller, index: int, batch: int) -> int:
        """Run iterations of GPT-3 Small, for callers that know no tasks; the number of the run."""
        [iteration] = find_tasks("gpt3-small", f"sim:{self._recipe[0].name}", Shape(batch=batch), "iteration").tasks
        return self.start(caller, index, iteration)

    def mark(self, caller: Caller, number: int) -> None:
        """Begin a lap of a run."""
        with self._lock:
            self._runs[number].mark()

    def completed(self, caller: Caller, number: int) -> int:
        """Whole calls since the first mark of a run."""
        with self._lock:
            return self._runs[number].completed

    def progress(self, caller: Caller, number: int) -> float:
        """Calls of a run until now, with the fraction of the current one."""
        with self._lock:
            return self._runs[number].progress

    def end(self, caller: Caller, number: int) -> tuple[Lap, ...]:
        """End a run; its laps."""
        with self._lock:
            caller.runs.remove(number)
            run = self._runs.pop(number, None)  # a reset has ended it already
            if run is None:
                return ()
            run.end()
            return run.laps

    # ---- iterations that show when a switch takes effect -----------------------------------------------------

    def trace(self, caller: Caller, index: int, load: Load, seconds: float) -> int:
        """Run tiny iterations; the number of the run."""
        with self._lock:
            gpu = self._gpus[index]
            running = gpu.tracer.start(load, seconds)
            number = next(self._numbers)
            self._traces[number] = (running, running.__enter__())
            return number

    def end_trace(self, caller: Caller, number: int) -> Trace:
        """End them; what was seen."""
        with self._lock:
            running, run = self._traces.pop(number)
            running.__exit__(None, None, None)
            return run.trace

    # ---- the socket ------------------------------------------------------------------------------------------

    def listen(self, path: str) -> socket.socket:
        """A socket that callers can connect to."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(path)
        listening.listen(64)
        return listening

    def serve_forever(self, listening: socket.socket) -> None:
        """Serve each caller in a thread of its own."""
        while True:
            connection, _ = listening.accept()
            caller = Caller(connection)
            self._callers.append(caller)
            threading.Thread(target=self._converse, args=(connection, caller), daemon=True).start()

    def _converse(self, connection: socket.socket, caller: Caller) -> None:
        with connection, contextlib.suppress(EOFError, OSError):
            while True:
                verb, *arguments = receive(connection)
                try:
                    reply = (True, getattr(self, verb)(caller, *arguments))
                except DeviceError as error:
                    reply = (False, error)
                except Exception:
                    reply = (False, RuntimeError(f"the stand-in failed:\n{traceback.format_exc()}"))
                send(connection, reply)
        for number in tuple(caller.runs):  # what a killed program ran ends with it
            self.end(caller, number)
        if isinstance(self._timing, WallTiming):
            self._timing.leave(caller)
        self._callers.remove(caller)


def main() -> None:
    """Serve until killed, or until standard input ends where that is asked for."""
    parser = argparse.ArgumentParser(description="Simulated GPUs behind NVML's functions, on a unix socket.")
    parser.add_argument("socket")
    parser.add_argument("preset", help="name of a preset, or a file that ends in .toml")
    parser.add_argument("--gpus", type=int, default=1)
    time = parser.add_mutually_exclusive_group()
    time.add_argument("--wall", action="store_true", help="live in real time")
    time.add_argument("--virtual", action="store_true", help="time passes only when it is let (default)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory-lock", choices=["board", "supported", "unsupported"], default="board")
    parser.add_argument("--until-input-ends", action="store_true", help="end when standard input does")
    asked = parser.parse_args()
    memory_lock = {"board": None, "supported": True, "unsupported": False}[asked.memory_lock]
    server = Server(find_preset(asked.preset), asked.gpus, asked.wall, asked.seed, memory_lock)
    listening = server.listen(asked.socket)
    print("ready", flush=True)
    if asked.until_input_ends:
        threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
    server.serve_forever(listening)


if __name__ == "__main__":
    main()
