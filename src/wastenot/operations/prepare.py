"""Ready-made calls of a kernel on buffers of their own."""

from __future__ import annotations

from collections.abc import Callable

from wastenot.workloads.kernel import KernelSpec

Prepared = Callable[[], object]
"""Runs one call; what it returns holds the outputs and may be dropped."""


def prepare(kernel: KernelSpec, device: str, copies: int, *, seed: int = 0) -> list[Prepared]:
    """Calls of a kernel, each on its own random buffers.

    Args:
        kernel: to run.
        device: PyTorch's name of the device, such as ``cuda:0`` or ``cpu``.
        copies: how many sets of buffers to make.
        seed: of the random data.

    Raises:
        CannotRunError: there is no operation for it, or the device lacks the memory.
    """
    if kernel.call is not None:
        from wastenot.operations.replay import prepare_call

        return prepare_call(kernel.call, device, copies, seed=seed)
    from wastenot.operations.analytical import prepare_kernel

    return prepare_kernel(kernel, device, copies, seed=seed)
