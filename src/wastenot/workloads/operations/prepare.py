"""Prepared calls of any kernel, analytical or captured, on their own buffers."""

from __future__ import annotations

from collections.abc import Callable

from wastenot.workloads.kernel import KernelSpec

Prepared = Callable[[], object]
"""Runs one call; returns its outputs, which the caller may drop."""


def prepare(kernel: KernelSpec, device: str, copies: int) -> list[Prepared]:
    """Calls of a kernel, each on its own random buffers.

    Args:
        kernel: the kernel to run.
        device: PyTorch's name of the device, such as ``cuda:0`` or ``cpu``.
        copies: number of buffer sets.

    Raises:
        CannotRunError: there is no operation for it, or the device lacks the memory.
    """
    if kernel.call is not None:
        from wastenot.workloads.operations.replay import prepare_call

        return prepare_call(kernel.call, device, copies)
    from wastenot.workloads.operations.analytical import prepare_kernel

    return prepare_kernel(kernel, device, copies)
