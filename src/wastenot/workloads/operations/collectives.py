"""Collectives over NCCL on all GPUs that this process sees, queued by the one process.

One GPU is observed; the other GPUs' parts run on their default streams and wait there until its part runs too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.cuda import nccl

from wastenot.core.errors import CannotRunError
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.operations.prepared_call import Buffers, PreparedCall

_LEAST_GPUS = 2


def collective(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """An all-reduce or all-gather that leaves as many bytes on each GPU as the kernel's shape says.

    It works out of place: repeated sums would soon be infinite, and infinite numbers draw less power.

    Raises:
        CannotRunError: there are too few GPUs, or PyTorch lacks NCCL.
    """
    count = torch.cuda.device_count() if make.on_gpu else 0
    if count < _LEAST_GPUS:
        visible = f"{count or 'none'} is visible"
        raise CannotRunError(f"{kernel.name}: a collective needs two or more GPUs; {visible}")
    if not hasattr(torch._C, "_nccl_all_reduce"):
        raise CannotRunError(f"{kernel.name}: this PyTorch was built without NCCL; install a build with it")
    gathers = kernel.label == "all-gather"
    elements = max(kernel.shape[0] // make.dtype.itemsize, 1)
    part = max(elements // count, 1) if gathers else elements
    # GPUs in PyTorch's order, the same for all collectives, so that NCCL's communicator is made once.
    makers = [Buffers(f"cuda:{index}", make.dtype, make.seed + index) for index in range(count)]
    inputs = tuple(each.normal(part) for each in makers)
    outputs = tuple(each.empty(part * count if gathers else part) for each in makers)
    how = f"NCCL, {count} GPUs, one process"
    operation = nccl.all_gather if gathers else nccl.all_reduce
    return PreparedCall(_run, (operation, inputs, outputs), how)


def _run(operation: Callable[..., None], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Refuses capture: the other GPUs' streams are not captured, and their parts would wait forever."""
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("collectives of one process are not captured")
    operation(inputs, outputs)
