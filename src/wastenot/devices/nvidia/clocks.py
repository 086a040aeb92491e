"""Clocks of an NVIDIA GPU: asked for under a journal, and always given back.

NVML tells supported clocks, the power limit and clocks in effect, but not whether somebody has locked clocks. So what was
locked before is lost unless it is named; the journal says to what the GPU goes back.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from wastenot.devices.nvidia import journal
from wastenot.devices.nvidia.journal import Journal, Restore
from wastenot.devices.nvidia.nvml import NoPermissionError, NotSupportedError, Nvml, NvmlError
from wastenot.errors import ClocksRefusedError
from wastenot.setting import AUTO, Setting

_BLACKWELL = 10  # NVML's number of the architecture


class NvidiaClocks:
    """Clock control of one GPU.

    Args:
        nvml: to ask.
        handle: of the GPU.
        uuid: of the GPU.
        restore: ranges of locked clocks to go back to; by default they are reset.
    """

    def __init__(self, nvml: Nvml, handle: Any, uuid: str, restore: Restore | None = None) -> None:
        self._nvml, self._handle, self._uuid = nvml, handle, uuid
        self._restore = restore or Restore()
        self._states: dict[float, tuple[float, ...]] | None = None
        self._held: _Lease | None = None
        self._memory_locks = True  # until it is found not to

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """Core clocks that may be asked for with each memory clock, both rising."""
        if self._states is None:
            found = self._nvml.try_call("nvmlDeviceGetSupportedMemoryClocks", self._handle) or ()
            told = {memory: self._cores(memory) for memory in sorted(map(float, found))}
            self._states = {memory: cores for memory, cores in told.items() if cores}
        return self._states

    def _cores(self, memory_mhz: float) -> tuple[float, ...]:
        found = self._nvml.try_call("nvmlDeviceGetSupportedGraphicsClocks", self._handle, round(memory_mhz)) or ()
        return tuple(sorted(map(float, found)))

    def power_limits_w(self) -> tuple[float, float] | None:
        """The least and the greatest power limit; ``None`` where it may not be set."""
        if self._nvml.refusal() is not None:
            return None
        found = self._nvml.try_call("nvmlDeviceGetPowerManagementLimitConstraints", self._handle)
        return None if found is None else (1e-3 * found[0], 1e-3 * found[1])

    def request(self, setting: Setting) -> None:
        """Ask for a setting. The first one that is not auto takes the lease of the GPU's clocks.

        Raises:
            ClocksRefusedError: the GPU does not have it, the user may not, or it is not allowed.
        """
        if setting == AUTO:
            self.release()
            return
        self._check(setting)
        reason = self._nvml.refusal()
        if reason is not None:
            raise ClocksRefusedError(f"{self._uuid}: clocks stay as they are: {reason}")
        if self._held is None:
            limit = self._nvml.try_call("nvmlDeviceGetPowerManagementLimit", self._handle)
            restore = Restore(self._restore.core_mhz, self._restore.memory_mhz, None if limit is None else 1e-3 * limit)
            self._held = _Lease(self._uuid, restore, self._give_back)
        try:
            self._apply(setting)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give back what was changed; nothing happens where nothing was."""
        if self._held is not None:
            self._held.end()
            self._held = None  # where giving back failed it is tried again, at the latest when the program ends

    def _give_back(self, restore: Restore, touched: set[str]) -> None:
        put_back(self._nvml, self._handle, restore, touched)

    def _check(self, setting: Setting) -> None:
        supported_clocks = self.supported_clocks()
        if setting.memory_mhz is not None and setting.memory_mhz not in supported_clocks:
            have = ", ".join(f"{clock:g}" for clock in supported_clocks) or "none"
            raise ClocksRefusedError(f"{self._uuid}: no memory clock of {setting.memory_mhz:g} MHz; it has {have}")
        memory = max(supported_clocks) if setting.memory_mhz is None and supported_clocks else setting.memory_mhz
        cores = supported_clocks.get(memory, ()) if memory is not None else ()
        if setting.core_mhz is not None and setting.core_mhz not in cores:
            have = f"{cores[0]:g} to {cores[-1]:g}" if cores else "none"
            raise ClocksRefusedError(
                f"{self._uuid}: no core clock of {setting.core_mhz:g} MHz with that memory clock; it has {have}"
            )
        limits = self._nvml.try_call("nvmlDeviceGetPowerManagementLimitConstraints", self._handle)
        limit = setting.power_limit_w
        if limit is not None and (limits is None or not 1e-3 * limits[0] <= limit <= 1e-3 * limits[1]):
            have = "cannot be set" if limits is None else f"can be {1e-3 * limits[0]:g} to {1e-3 * limits[1]:g} W"
            raise ClocksRefusedError(f"{self._uuid}: no power limit of {limit:g} W; it {have}")

    def _apply(self, setting: Setting) -> None:
        assert self._held is not None
        touched, restore = self._held.touched, self._held.restore
        wanted: list[tuple[str, float | None, str]] = [
            ("memory", setting.memory_mhz, "nvmlDeviceSetMemoryLockedClocks"),
            ("core", setting.core_mhz, "nvmlDeviceSetGpuLockedClocks"),
            ("power", setting.power_limit_w, "nvmlDeviceSetPowerManagementLimit"),
        ]
        for kind, value, function in wanted:
            if value is None:
                if kind in touched:
                    put_back(self._nvml, self._handle, restore, {kind})
                    touched.discard(kind)
                continue
            arguments = self._arguments(kind, value)
            if arguments is None:
                if kind in touched:
                    self._nvml.call("nvmlDeviceResetMemoryLockedClocks", self._handle)
                continue
            before = set(touched)
            touched.add(kind)
            try:
                self._nvml.call(function, self._handle, *arguments)
            except (NotSupportedError, NoPermissionError) as error:
                touched &= before  # nothing was changed
                if isinstance(error, NotSupportedError) and kind == "memory":
                    self._memory_locks = False
                raise ClocksRefusedError(f"{self._uuid}: {kind}: {error}") from error

    def _arguments(self, kind: str, value: float) -> tuple[int, ...] | None:
        """What the function takes; ``None`` for a lock that is better left undone."""
        if kind == "power":
            return (round(1e3 * value),)
        if kind == "core":
            # A ceiling: the GPU may idle below it.
            lowest = min(cores[0] for cores in self.supported_clocks().values())
            return (round(lowest), round(value))
        if not self._memory_locks:
            raise ClocksRefusedError(f"{self._uuid}: memory: this GPU or its driver does not support setting its clock")
        if value == max(self.supported_clocks()) and (self._architecture() or 0) >= _BLACKWELL:
            return None  # any upper bound, even the highest, slows Blackwell down
        return (round(value), round(value))

    def _architecture(self) -> int | None:
        found = self._nvml.try_call("nvmlDeviceGetArchitecture", self._handle)
        return None if found is None else int(found)


def put_back(nvml: Nvml, handle: Any, restore: Restore, kinds: set[str]) -> None:
    """Bring a GPU back to what its journal says.

    All kinds are tried before an error is raised.

    Args:
        nvml: to ask.
        handle: of the GPU.
        restore: to what it goes back.
        kinds: of ``core``, ``memory`` and ``power`` those that may have been changed.

    Raises:
        NvmlError: something could not be put back.
    """
    failed: NvmlError | None = None

    def call(function: str, *arguments: int) -> None:
        nonlocal failed
        try:
            nvml.call(function, handle, *arguments)
        except NotSupportedError:
            pass  # what cannot be set was not changed
        except NvmlError as error:
            failed = failed or error

    if "power" in kinds and restore.power_limit_w is not None:
        call("nvmlDeviceSetPowerManagementLimit", round(1e3 * restore.power_limit_w))
    for kind, bounds, name in (("core", restore.core_mhz, "Gpu"), ("memory", restore.memory_mhz, "Memory")):
        if kind in kinds:
            if bounds is None:
                call(f"nvmlDeviceReset{name}LockedClocks")
            else:
                call(f"nvmlDeviceSet{name}LockedClocks", round(bounds[0]), round(bounds[1]))
    if failed is not None:
        raise failed


def recover(nvml: Nvml) -> tuple[Journal, ...]:
    """Put right what dead processes left changed.

    Args:
        nvml: that may make changes.

    Returns:
        The journals that were seen to.

    Raises:
        NvmlError: a GPU could not be put right; its journal stays.
    """
    done = []
    for found in journal.stale():
        claimed = journal.claim(found)
        if claimed is None:
            continue
        try:
            handle = nvml.call("nvmlDeviceGetHandleByUUID", found.uuid)
            put_back(nvml, handle, found.restore, {"core", "memory", "power"})
        except NvmlError as error:
            raise type(error)(f"{found.uuid}: clocks were left changed by process {found.owner}: {error}") from error
        journal.end(claimed)
        done.append(found)
    return tuple(done)


class _Terminated(SystemExit):
    """A signal asked the process to end."""


class _Lease:
    """The right to change one GPU's clocks, from the journal's writing until all is given back.

    A signal that would end the process becomes an exception, so that contexts are left in order; what still slips through is
    caught when the interpreter ends.
    """

    def __init__(self, uuid: str, restore: Restore, give_back: Callable[[Restore, set[str]], None]) -> None:
        self.restore, self.touched = restore, set[str]()
        self._give_back = give_back
        self._process = os.getpid()
        self._path = journal.begin(uuid, restore)
        self._before: dict[int, Any] = {}
        atexit.register(self.end)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._before[number] = signal.signal(number, _leave)

    def end(self) -> None:
        """Give back, then forget. A forked child gives nothing back: the lease is its parent's."""
        if os.getpid() != self._process:
            return
        self._give_back(self.restore, self.touched)
        journal.end(self._path)
        atexit.unregister(self.end)
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    raise _Terminated(128 + number)
