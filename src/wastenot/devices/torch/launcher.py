"""Runs tasks with PyTorch: on a GPU as CUDA graphs back to back, on a CPU eagerly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wastenot.devices.protocol import Task
from wastenot.devices.torch.devices import find_torch_device
from wastenot.errors import CannotRunError, DeviceError
from wastenot.operations.prepare import prepare
from wastenot.setting import Setting
from wastenot.workloads.kernel import KernelSpec

if TYPE_CHECKING:
    import torch

    from wastenot.devices.torch.task_run import GpuRun, HostRun

_ORDINARY = "one operation"  # what goes without saying
_CACHES = 3.0  # buffers together are at least so many times as large as the L2 cache
_MOST_COPIES = 64
_SHARE_OF_MEMORY = 0.6  # that the copies of a kernel may take; outputs and graphs need some too


class TorchLauncher:
    """Runs tasks on one device of PyTorch.

    Args:
        device: PyTorch's name of it, such as ``cuda:0`` or ``cpu``.
        seed: of the random data that kernels run on.

    Raises:
        DeviceError: PyTorch is missing, or does not have the device.
    """

    def __init__(self, device: str, *, seed: int = 0) -> None:
        self._device = find_torch_device(device)
        self._seed = seed
        self._stream: torch.cuda.Stream | None = None
        self._refused: set[Task] = set()

    @property
    def device(self) -> torch.device:
        """PyTorch's device."""
        return self._device

    def can_run(self, task: Task, setting: Setting) -> bool:
        """Whether each kernel has an operation, and none has failed for lack of memory before."""
        from wastenot.operations.analytical import find_operation

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
    def start(self, task: Task) -> Iterator[GpuRun | HostRun]:
        """Run a task back to back until the context is left; then wait for what is queued and free its memory.

        Raises:
            CannotRunError: a kernel has no operation, or the device lacks the memory.
            DeviceError: the device failed.
        """
        from wastenot.devices.torch.task_run import GpuRun
        from wastenot.operations.analytical import release_memory

        run = self._begin(task)
        try:
            run.feed()
            if isinstance(run, GpuRun):
                run.feed_from_a_thread()
            yield run
        finally:
            try:
                run.close()
            finally:
                release_memory(self._device)

    def _begin(self, task: Task) -> GpuRun | HostRun:
        from wastenot.operations.analytical import out_of_memory, release_memory

        try:
            return self._begin_on_host(task) if self._device.type == "cpu" else self._begin_on_gpu(task)
        except CannotRunError as error:
            reason = str(error)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise DeviceError(f"{task.name}: failed on {self._device}: {_first_line(error)}") from None
            reason = ""
        # The error is gone by now, and with it the frames that held the buffers.
        release_memory(self._device)
        self._refused.add(task)
        if reason:
            raise CannotRunError(reason)
        need = sum(kernel.bytes_moved for kernel, _ in task.steps) / 1e9
        raise CannotRunError(
            f"{task.name}: its data, about {need:,.3g} GB and what the operations need besides, do not fit the "
            f"{self._free_bytes() / 1e9:,.3g} GB free on {self._device}; take a smaller batch or sequence"
        )

    def _begin_on_host(self, task: Task) -> HostRun:
        from wastenot.devices.torch.task_run import HostRun

        program = Program(task, str(self._device), seed=self._seed)
        return HostRun(program.run, program.notes)

    def _begin_on_gpu(self, task: Task) -> GpuRun:
        import torch

        from wastenot.devices.torch.task_run import GpuRun, plan_launch

        with torch.cuda.device(self._device):
            self._stream = self._stream or torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            l2_bytes = torch.cuda.get_device_properties(self._device).L2_cache_size
            program = Program(task, str(self._device), l2_bytes=l2_bytes, free_bytes=self._free_bytes(), seed=self._seed)
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()
            return GpuRun(plan_launch(program, self._stream), self._stream, program.notes)

    def _free_bytes(self) -> int:
        import torch

        return torch.cuda.mem_get_info(self._device)[0] if self._device.type == "cuda" else 0


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


class Program:
    """Runs the calls of a task, again and again.

    Args:
        task: what a call consists of.
        device: PyTorch's name of it.
        l2_bytes: size of its cache; 0 where it does not matter.
        free_bytes: of its memory; 0 where it is not known.
        seed: of the random data.

    Raises:
        CannotRunError: a kernel cannot be run, or the device lacks the memory.
    """

    def __init__(self, task: Task, device: str, *, l2_bytes: int = 0, free_bytes: int = 0, seed: int = 0) -> None:
        self._order = task.order
        alone = len(self._order) == 1
        self._ready: list[list[Callable[[], object]]] = []
        for kernel, times in task.steps:
            copies = copies_of(kernel, l2_bytes, free_bytes, None if alone else times)
            self._ready.append(prepare(kernel, device, copies, seed=seed))
        self._held: list[list[object]] = [[None] * len(calls) for calls in self._ready]
        self._next = [0] * len(self._ready)
        self.notes = _notes(task, self._ready)

    @property
    def kernels_a_call(self) -> int:
        """Kernels that one call of the task runs."""
        return len(self._order)

    @property
    def buffers(self) -> int:
        """Sets of buffers that calls go through in turn; of several kernels, the most."""
        return max(len(calls) for calls in self._ready)

    def run(self) -> None:
        """Run one call of the task.

        Outputs are kept until their buffers' next turn, so that those of the next calls are not written over them, into
        the cache; those of kernels with one set of buffers outgrow it, or are followed by others.
        """
        for step in self._order:
            calls, held = self._ready[step], self._held[step]
            turn = self._next[step]
            held[turn] = None
            output = calls[turn]()
            if len(calls) > 1:
                held[turn] = output
            self._next[step] = (turn + 1) % len(calls)

    def drop_outputs(self) -> None:
        """Let go of all outputs; the next call is on the first buffers."""
        self._held = [[None] * len(calls) for calls in self._ready]
        self._next = [0] * len(self._ready)


def copies_of(kernel: KernelSpec, l2_bytes: int, free_bytes: int, times: int | None = None) -> int:
    """How many sets of buffers it takes to outgrow the cache.

    Args:
        kernel: to run.
        l2_bytes: size of the cache.
        free_bytes: of memory; 0 where it is not known.
        times: it runs in a call of several kernels, which empty the cache too; ``None`` where it runs alone.
    """
    if kernel.bytes_moved <= 0 or (times is not None and kernel.bytes_moved >= l2_bytes):
        return 1
    copies = math.ceil(_CACHES * l2_bytes / kernel.bytes_moved)
    if free_bytes:
        copies = min(copies, int(_SHARE_OF_MEMORY * free_bytes / kernel.bytes_moved))
    return max(1, min(copies, _MOST_COPIES if times is None else min(times, _MOST_COPIES)))


def _notes(task: Task, ready: Sequence[Sequence[Callable[[], object]]]) -> tuple[str, ...]:
    """How kernels run that do not run as one operation."""
    kernels: dict[str, list[str]] = {}
    for (kernel, _), calls in zip(task.steps, ready, strict=True):
        how = str(getattr(calls[0], "how", _ORDINARY))
        if how != _ORDINARY:
            kernels.setdefault(how, []).append(kernel.name)
    if len(ready) == 1:
        return tuple(kernels)
    return tuple(f"{how}: {', '.join(names)}" for how, names in kernels.items())
