"""Clock control of an NVIDIA GPU: changes are journaled first and always undone.

NVML reports supported clocks, the power limit and clocks in effect, but not whether clocks are locked. So an earlier lock is
lost unless the user names it; the journal records what to restore.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from wastenot.core.errors import ClocksRefusedError
from wastenot.core.processes import Terminated
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.nvidia import journal
from wastenot.devices.nvidia.journal import Holder, Journal, Restore
from wastenot.devices.nvidia.nvml import NoPermissionError, NotSupportedError, Nvml, NvmlError

_BLACKWELL = 10  # NVML's number of the architecture


class NvidiaClocks:
    """Clock control of one GPU.

    Args:
        nvml: access to NVML.
        handle: NVML's handle of the GPU.
        uuid: the GPU's UUID.
        restore: ranges of locked clocks to restore; by default locks are reset.
        client: on whose behalf they are set, where that is not this process.
        missing: what this process would need to set clocks, where it is known to lack that.

    Attributes:
        on_change: called once a setting has been changed for the first time.
        on_interrupt: called when a claim was interrupted and what it changed is undone.
    """

    def __init__(
        self,
        nvml: Nvml,
        handle: Any,
        uuid: str,
        restore: Restore | None = None,
        client: Holder | None = None,
        missing: str | None = None,
    ) -> None:
        self._nvml, self._handle, self._uuid = nvml, handle, uuid
        self._restore, self._client, self._missing = restore or Restore(), client, missing
        self._supported: dict[float, tuple[float, ...]] | None = None
        self._held: _Lease | None = None
        self._memory_locks = True  # until the driver says otherwise
        self._claimed = self._changed = False
        self._default = set[str]()  # what is known to be left to the driver
        self.on_change: Callable[[], None] = _nothing
        self.on_interrupt: Callable[[], None] = _nothing

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """By memory clock, the core clocks that may be requested with it, both ascending."""
        if self._supported is None:
            memory_mhz = self._nvml.try_call("nvmlDeviceGetSupportedMemoryClocks", self._handle) or ()
            self._supported = {}
            for memory in sorted(memory_mhz):
                core_mhz = self._nvml.try_call("nvmlDeviceGetSupportedGraphicsClocks", self._handle, memory)
                if core_mhz:
                    self._supported[float(memory)] = tuple(sorted(map(float, core_mhz)))
        return self._supported

    def power_limits_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit; ``None`` where it may not be set."""
        return None if self._nvml.refusal() is not None else self.power_limit_range_w()

    def power_limit_range_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit of the GPU, whoever may set it; ``None`` where it is not reported."""
        limits = self._nvml.try_call("nvmlDeviceGetPowerManagementLimitConstraints", self._handle)
        return None if limits is None else (1e-3 * limits[0], 1e-3 * limits[1])

    def refusal(self) -> str | None:
        """Why wastenot does not change clocks here; ``None`` where it would try."""
        reason = self._nvml.refusal()
        if reason is None and self._missing is not None:
            reason = f"this process may not set clocks: {self._missing}"
        return reason

    def request(self, setting: Setting) -> None:
        """Request a setting. The first one that is not auto acquires the lease on the GPU's clocks.

        Raises:
            ClocksRefusedError: the GPU does not support it, the user lacks the permission, or changes are not allowed.
            DeviceError: another process holds the lease, or the driver failed.
        """
        if setting == AUTO:
            self.release()
            return
        self._check(setting)
        reason = self._nvml.refusal()
        if reason is not None:
            raise ClocksRefusedError(f"{self._uuid}: clocks cannot be changed: {reason}")
        self._acquire()
        try:
            self._apply(setting)
        except BaseException:
            self.release()
            raise
        self._note_change()

    def release(self) -> None:
        """Undo what was changed, if anything was, and end the lease; while it is claimed, only reset to the default clocks.

        What a claim measures at auto is the driver's own choice: locks set before, which cannot be read, are reset for it,
        and those that are to be restored return when it ends.
        """
        if self._held is not None and self._claimed:
            self._to_default(self._held.touched | {"core", "memory"})
        elif self._held is not None:
            self._held.end()
            self._held = None  # where undoing failed it is tried again, at the latest when the program ends

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the lease inside the context, at the default clocks too, so that no other process sets clocks meanwhile.

        Raises:
            DeviceError: another process holds it, or the driver failed.
        """
        if self._claimed or self._nvml.refusal() is not None:
            yield
            return
        self.claim()
        try:
            yield
        except (KeyboardInterrupt, Terminated):
            self.end_claim()
            if self._changed:
                self.on_interrupt()
            raise
        finally:
            self.end_claim()

    @property
    def holding(self) -> bool:
        """Whether it has the lease: there may be something to undo."""
        return self._held is not None

    def hold(self) -> None:
        """Acquire the lease and change nothing yet.

        Raises:
            DeviceError: another process holds it, or the driver failed.
        """
        self._acquire()

    def claim(self) -> None:
        """Begin to hold the lease at the default clocks too, until :meth:`end_claim`.

        Raises:
            DeviceError: another process holds it, or the driver failed.
        """
        self._acquire()
        self._claimed = True

    def end_claim(self) -> None:
        """Undo what was changed and end the lease."""
        self._claimed = False
        self.release()

    def _note_change(self) -> None:
        if not self._changed:
            self._changed = True
            self.on_change()

    def _to_default(self, kinds: set[str]) -> None:
        """Leave some kinds of a setting to the driver, if they are not yet; the lease knows that they were changed."""
        assert self._held is not None
        kinds = kinds - self._default
        if not kinds:
            return
        before = set(self._held.touched)
        self._held.touched |= kinds
        try:
            restore_clocks(self._nvml, self._handle, Restore(power_limit_w=self._held.restore.power_limit_w), kinds)
        except NoPermissionError:
            self._held.touched &= before  # nothing was changed, and what is to be set will say why
            return
        self._default |= kinds
        self._note_change()

    def _acquire(self) -> None:
        if self._held is None:
            self._default = set()
            limit = self._nvml.try_call("nvmlDeviceGetPowerManagementLimit", self._handle)
            restore = Restore(self._restore.core_mhz, self._restore.memory_mhz, None if limit is None else 1e-3 * limit)
            self._held = _Lease(self._uuid, restore, self._undo, self._client)

    def _undo(self, restore: Restore, touched: set[str]) -> None:
        restore_clocks(self._nvml, self._handle, restore, touched)

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
        touched = self._held.touched
        wanted: list[tuple[str, float | None, str]] = [
            ("memory", setting.memory_mhz, "nvmlDeviceSetMemoryLockedClocks"),
            ("core", setting.core_mhz, "nvmlDeviceSetGpuLockedClocks"),
            ("power", setting.power_limit_w, "nvmlDeviceSetPowerManagementLimit"),
        ]
        for kind, value, function in wanted:
            if value is None:
                if kind in touched or (self._claimed and kind != "power"):
                    self._to_default({kind})
                continue
            self._default.discard(kind)
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
                raise ClocksRefusedError(f"{self._uuid}: {kind}: {error}{self._hint(error)}") from error

    def _hint(self, error: NvmlError) -> str:
        return f"; {self._missing}" if self._missing is not None and isinstance(error, NoPermissionError) else ""

    def _arguments(self, kind: str, value: float) -> tuple[int, ...] | None:
        """The function's arguments; ``None`` for a lock that is better not set."""
        if kind == "power":
            return (round(1e3 * value),)
        if kind == "core":
            # A ceiling: the GPU may run below it.
            lowest = min(cores[0] for cores in self.supported_clocks().values())
            return (round(lowest), round(value))
        if not self._memory_locks:
            raise ClocksRefusedError(f"{self._uuid}: memory: this GPU or its driver does not support setting its clock")
        if value == max(self.supported_clocks()) and (self._architecture() or 0) >= _BLACKWELL:
            return None  # any upper bound, even the highest clock, slows Blackwell down
        return (round(value), round(value))

    def _architecture(self) -> int | None:
        number = self._nvml.try_call("nvmlDeviceGetArchitecture", self._handle)
        return None if number is None else int(number)


def restore_clocks(nvml: Nvml, handle: Any, restore: Restore, kinds: set[str]) -> None:
    """Restore a GPU to what its journal says, trying all kinds before raising.

    Args:
        nvml: access to NVML.
        handle: NVML's handle of the GPU.
        restore: what to restore.
        kinds: those of ``core``, ``memory`` and ``power`` that may have been changed.

    Raises:
        NvmlError: something could not be restored; the first failure.
    """
    failed: NvmlError | None = None

    def call(function: str, *arguments: int) -> None:
        nonlocal failed
        try:
            nvml.call(function, handle, *arguments)
        except NotSupportedError:
            pass  # what cannot be set has not been changed
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
    """Restore the GPUs whose clocks dead processes left changed.

    Args:
        nvml: access to NVML that allows changes.

    Returns:
        The journals of the GPUs that were restored.

    Raises:
        NvmlError: a GPU could not be restored, the others were; its journal stays.
    """
    restored = []
    failed: NvmlError | None = None
    for left in journal.stale():
        claimed = journal.claim(left)
        if claimed is None:
            continue
        try:
            handle = nvml.call("nvmlDeviceGetHandleByUUID", claimed.uuid)
            restore_clocks(nvml, handle, claimed.restore, {"core", "memory", "power"})
        except BaseException as error:
            journal.disclaim(claimed.path)
            if not isinstance(error, NvmlError):
                raise
            failed = failed or type(error)(f"{left.uuid}: clocks were left changed by {left.holder}: {error}")
            continue
        journal.end(claimed.path)
        restored.append(claimed)
    if failed is not None:
        raise failed
    return tuple(restored)


class _Lease:
    """The exclusive right to change one GPU's clocks, from writing the journal until everything is undone.

    A signal that would end the process becomes an exception, so that contexts exit in order; an exit handler of the
    interpreter catches whatever remains.
    """

    def __init__(
        self, uuid: str, restore: Restore, undo: Callable[[Restore, set[str]], None], client: Holder | None = None
    ) -> None:
        self.restore, self.touched = restore, set[str]()
        self._undo = undo
        self._process = os.getpid()
        self._path = journal.begin(uuid, restore, client)
        self._before: dict[int, Any] = {}
        atexit.register(self.end)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._before[number] = signal.signal(number, _terminate)

    def undo(self) -> None:
        """Undo the changes and keep the lease. A forked child does nothing: the lease is its parent's."""
        if os.getpid() == self._process:
            self._undo(self.restore, self.touched)
            self.touched.clear()

    def end(self) -> None:
        """Undo the changes, then remove the journal; a forked child does neither."""
        if os.getpid() != self._process:
            return
        self.undo()
        journal.end(self._path)
        atexit.unregister(self.end)
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                signal.signal(number, handler)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated(128 + number)


def _nothing() -> None:
    pass
