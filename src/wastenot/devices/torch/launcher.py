"""Runs tasks with PyTorch on a GPU, as CUDA graphs back to back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wastenot.core.errors import CannotRunError, DeviceError, MissingExtraError, first_line
from wastenot.core.setting import Setting
from wastenot.devices.protocol import Task
from wastenot.devices.torch.devices import find_torch_device
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.operations.prepare import prepare

if TYPE_CHECKING:
    import torch

    from wastenot.devices.torch.host_stamps import HostStamps
    from wastenot.devices.torch.launch_clocks import LaunchClocks
    from wastenot.devices.torch.task_run import GpuRun

_ORDINARY = "one operation"  # not worth a note
_CACHES = 3.0  # total size of a kernel's buffers relative to the L2 cache, at least
_MOST_COPIES = 64
_MEMORY_FRACTION = 0.6  # of free memory that a kernel's buffers may take; outputs and graphs need some too


class TorchLauncher:
    """Runs tasks on one PyTorch device.

    Args:
        device: PyTorch's name of the device, such as ``cuda:0``.

    Raises:
        MissingExtraError: PyTorch is not installed, or was built without CUDA.
        BadInputError: there is no such device.
        DeviceError: PyTorch finds no GPU.
    """

    def __init__(self, device: str) -> None:
        self.device = find_torch_device(device)
        self._stream: torch.cuda.Stream | None = None
        self._stamps: HostStamps | None = None
        self._not_counted: tuple[str, ...] = ()  # why cycles cannot be counted
        self._refused: set[Task] = set()

    def can_run(self, task: Task, setting: Setting) -> bool:
        """Whether every kernel has an operation, and the task has not run out of memory before."""
        from wastenot.workloads.operations.analytical import find_operation

        if task in self._refused:
            return False
        try:
            for kernel, _ in task.steps:
                if kernel.call is None:
                    find_operation(kernel)
        except CannotRunError:
            return False
        return True

    @contextmanager
    def start(self, task: Task) -> Iterator[GpuRun]:
        """Run a task back to back until the context exits; then wait for what is queued and free its memory."""
        from wastenot.workloads.operations.analytical import release_memory

        run = self._begin(task)
        try:
            run.feed()
            run.feed_from_a_thread()
            yield run
        finally:
            try:
                run.close()
            finally:
                release_memory(self.device)

    def _begin(self, task: Task) -> GpuRun:
        from wastenot.workloads.operations.analytical import out_of_memory, release_memory

        try:
            return self._begin_on_gpu(task)
        except CannotRunError as error:
            reason = str(error)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise DeviceError(f"{task.name}: failed on {self.device}: {first_line(error)}") from None
            reason = ""
        # The exception has been released by now, and with it the frames that held the buffers.
        release_memory(self.device)
        self._refused.add(task)
        if reason:
            raise CannotRunError(reason)
        need = sum(kernel.bytes_moved for kernel, _ in task.steps) / 1e9
        raise CannotRunError(
            f"{task.name}: its data, about {need:,.3g} GB plus what the operations need, do not fit into the "
            f"{self._free_bytes() / 1e9:,.3g} GB free on {self.device}; use a smaller batch or sequence"
        )

    def _begin_on_gpu(self, task: Task) -> GpuRun:
        import torch

        from wastenot.devices.torch.task_run import GpuRun, make_launch

        with torch.cuda.device(self.device):
            self._stream = self._stream or torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            l2_bytes = torch.cuda.get_device_properties(self.device).L2_cache_size
            program = Program(task, str(self.device), l2_bytes=l2_bytes, free_bytes=self._free_bytes())
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
            launch, clocks = make_launch(program, self._stream), self._launch_clocks(self._stream)
            return GpuRun(launch, self._stream, (*program.notes, *self._not_counted), clocks)

    def _launch_clocks(self, stream: torch.cuda.Stream) -> LaunchClocks | None:
        from wastenot.devices.torch.host_stamps import HostStamps
        from wastenot.devices.torch.launch_clocks import LaunchClocks

        if self._stamps is None and not self._not_counted:
            try:
                self._stamps = HostStamps(self.device)
            except (MissingExtraError, DeviceError) as error:
                self._not_counted = (f"core clock by the driver: {error}",)
        return None if self._stamps is None else LaunchClocks(self._stamps, stream)

    def _free_bytes(self) -> int:
        import torch

        return torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else 0


class Program:
    """The prepared calls of a task, in order, over enough buffers that none is found in the cache.

    Args:
        task: the task.
        device: PyTorch's name of the device.
        l2_bytes: size of its L2 cache; 0 where it does not matter.
        free_bytes: its free memory; 0 where unknown.

    Raises:
        CannotRunError: a kernel cannot be run, or the device lacks the memory.
    """

    def __init__(self, task: Task, device: str, *, l2_bytes: int = 0, free_bytes: int = 0) -> None:
        self._order = task.order
        alone = len(self._order) == 1
        self._ready: list[list[Callable[[], object]]] = []
        for kernel, times in task.steps:
            copies = copies_of(kernel, l2_bytes, free_bytes, None if alone else times)
            self._ready.append(prepare(kernel, device, copies))
        self._held: list[list[object]] = [[None] * len(calls) for calls in self._ready]
        self._next = [0] * len(self._ready)
        self.notes = _notes(task, self._ready)

    @property
    def kernels_per_call(self) -> int:
        """Number of kernels in one call of the task."""
        return len(self._order)

    @property
    def buffers(self) -> int:
        """Number of buffer sets that calls cycle through; with several kernels, the largest."""
        return max(len(calls) for calls in self._ready)

    def arguments(self) -> list[Sequence[object]]:
        """The arguments of every prepared call, as far as calls hold theirs."""
        return [getattr(call, "arguments", ()) for calls in self._ready for call in calls]

    def run(self) -> None:
        """Run one call of the task.

        Outputs are kept until their buffers are used again, so that following calls do not write to the same memory, which
        would be in the cache. Kernels with one set of buffers outgrow the cache or are followed by other kernels.
        """
        for step in self._order:
            calls, held = self._ready[step], self._held[step]
            current = self._next[step]
            held[current] = None
            output = calls[current]()
            if len(calls) > 1:
                held[current] = output
            self._next[step] = (current + 1) % len(calls)

    def drop_outputs(self) -> None:
        """Release all outputs; the next call uses the first buffers."""
        self._held = [[None] * len(calls) for calls in self._ready]
        self._next = [0] * len(self._ready)


def copies_of(kernel: KernelSpec, l2_bytes: int, free_bytes: int, times: int | None = None) -> int:
    """Number of buffer sets needed to outgrow the cache.

    Args:
        kernel: the kernel to run.
        l2_bytes: size of the L2 cache.
        free_bytes: free memory; 0 where unknown.
        times: how often it runs in a call with other kernels, which evict its data too; ``None`` where it runs alone.
    """
    if kernel.bytes_moved <= 0 or (times is not None and kernel.bytes_moved >= l2_bytes):
        return 1
    copies = math.ceil(_CACHES * l2_bytes / kernel.bytes_moved)
    if free_bytes:
        held = 0 if kernel.call is None else kernel.call.buffer_bytes
        copies = min(copies, int(_MEMORY_FRACTION * free_bytes / max(kernel.bytes_moved, held)))
    return max(1, min(copies, _MOST_COPIES if times is None else min(times, _MOST_COPIES)))


def _notes(task: Task, ready: Sequence[Sequence[Callable[[], object]]]) -> tuple[str, ...]:
    """How kernels run, for those that do not run as one operation."""
    kernels: dict[str, list[str]] = {}
    for (kernel, _), calls in zip(task.steps, ready, strict=True):
        how = str(getattr(calls[0], "how", _ORDINARY))
        if how != _ORDINARY:
            kernels.setdefault(how, []).append(kernel.name)
    if len(ready) == 1:
        return tuple(kernels)
    return tuple(f"{how}: {', '.join(names)}" for how, names in kernels.items())
