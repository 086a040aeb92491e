"""A task made ready: the calls of its kernels in order, over enough buffers that none is found in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from wastenot.devices.protocol import Task
from wastenot.operations.prepare import prepare
from wastenot.workloads.kernel import KernelSpec

_ORDINARY = "one operation"  # what goes without saying
_CACHES = 3.0  # buffers together are at least so many times as large as the L2 cache
_MOST_COPIES = 64
_SHARE_OF_MEMORY = 0.6  # that the copies of a kernel may take; outputs and graphs need some too


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
