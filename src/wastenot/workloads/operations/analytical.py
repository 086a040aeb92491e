"""The analytical kernels of built-in workloads as PyTorch operations, on random data of their sizes.

The operation follows from the kernel's ``op`` and name. One that eager PyTorch runs as several is compiled to one kernel
on a GPU, as in fused implementations; where that fails, and on a CPU, it runs eagerly and reports so.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import torch

from wastenot.core.errors import CannotRunError, first_line
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.operations import (
    attention,
    collectives,
    elementwise,
    embeddings,
    gemms,
    norms,
    optimizers,
    reductions,
    softmaxes,
)
from wastenot.workloads.operations.prepared_call import Buffers, PreparedCall

Operation = Callable[[KernelSpec, Buffers], PreparedCall]
"""Prepares one call of a kernel on its own buffers."""

# The first match counts: op, name pattern, operation.
_OPERATIONS: tuple[tuple[str, str, Operation], ...] = (
    ("gemm", "*", gemms.gemm),
    ("attention", "*", attention.attention),
    ("attention_backward", "*", attention.attention_backward),
    ("softmax", "softmax", softmaxes.softmax),
    ("softmax", "softmax_backward", softmaxes.softmax_backward),
    ("softmax", "cross_entropy", softmaxes.cross_entropy),
    ("layernorm", "*_backward", norms.norm_backward),
    ("layernorm", "residual*", norms.residual_norm),
    ("layernorm", "layernorm*", norms.norm),
    ("rmsnorm", "*_backward", norms.norm_backward),
    ("rmsnorm", "residual*", norms.residual_norm),
    ("rmsnorm", "norm*", norms.norm),
    ("elementwise", "gelu_backward", elementwise.gelu_backward),
    ("elementwise", "gelu*", elementwise.gelu),
    ("elementwise", "silu_backward", elementwise.silu_product_backward),
    ("elementwise", "silu_product", elementwise.silu_product),
    ("elementwise", "rotary*", elementwise.rotary),
    ("permute", "permute_*", elementwise.permute),
    ("permute", "unpermute*", elementwise.permute),
    ("reduce", "*_reduce", reductions.sum_of_partials),
    ("reduce", "*_dbias", reductions.column_sums),
    ("reduce", "wpe_backward", embeddings.positions_backward),
    ("embedding", "wte_wpe", embeddings.embedding_with_positions),
    ("embedding_backward", "*", embeddings.embedding_backward),
    ("embedding", "embedding", embeddings.embedding),
    ("optimizer", "adamw*", optimizers.adamw),
    ("collective", "*", collectives.collective),
)
_DTYPES = {0: torch.bfloat16, 1: torch.float8_e4m3fn, 2: torch.bfloat16, 4: torch.float32}
_RECOMPILES = 256  # one per shape of a workload; PyTorch's default limit of 8 assumes more are a mistake


def find_operation(kernel: KernelSpec) -> Operation:
    """The operation that prepares calls of a kernel.

    Raises:
        CannotRunError: there is none.
    """
    for op, pattern, operation in _OPERATIONS:
        if kernel.op == op and fnmatchcase(kernel.name, pattern) and kernel.shape:
            return operation
    raise CannotRunError(
        f"{kernel.name}: it has no known PyTorch operation; only kernels of built-in and captured workloads can run"
    )


def prepare_kernel(kernel: KernelSpec, device: str, copies: int, *, seed: int = 0) -> list[Callable[[], object]]:
    """Calls of a kernel, each on its own random buffers.

    Data types follow from their size alone: two bytes are bf16, four are fp32.

    Args:
        kernel: the kernel to run.
        device: PyTorch's name of the device.
        copies: number of buffer sets.
        seed: seed of the random data.

    Returns:
        The calls; their ``how`` says how they run.

    Raises:
        CannotRunError: there is no operation for it, or the device lacks the memory.
    """
    operation = find_operation(kernel)
    if kernel.element_bytes == 1 and kernel.op not in {"gemm", "attention", "attention_backward"}:
        raise CannotRunError(f"{kernel.name}: PyTorch does not compute it in fp8; use bf16")
    shortage = ""
    with torch.no_grad():
        make = Buffers(device, _DTYPES[kernel.element_bytes], seed)
        try:
            calls = [operation(kernel, make) for _ in range(copies)]
            return list(_fused(calls) if make.on_gpu else calls)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            shortage = first_line(error)
    # The exception has been released by now, and with it the frames that held the buffers.
    release_memory(make.device)
    need = copies * kernel.bytes_moved / 1e9
    raise CannotRunError(
        f"{kernel.name}: {copies} × its data, {need:.3g} GB, do not fit into {device}; use a smaller batch ({shortage})"
    )


def out_of_memory(error: RuntimeError) -> bool:
    """Whether an error of PyTorch means that a device ran out of memory."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def release_memory(device: torch.device) -> None:
    """Return memory that nothing references to the device."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _fused(calls: Sequence[PreparedCall]) -> Sequence[PreparedCall]:
    """Calls compiled to one kernel, where eager PyTorch runs several operations."""
    first = calls[0]
    if first.parts == 1:
        return calls
    config: Any = torch._dynamo.config
    try:
        compiled = torch.compile(first.function, fullgraph=True, dynamic=False)
        with config.patch(recompile_limit=_RECOMPILES, accumulated_recompile_limit=64 * _RECOMPILES):
            for call in calls:  # the first compiles; the others must not
                compiled(*call.arguments)
        torch.cuda.synchronize(next(each.device for each in first.arguments if isinstance(each, torch.Tensor)))
    except Exception as error:
        if isinstance(error, RuntimeError) and (out_of_memory(error) or isinstance(error, torch.AcceleratorError)):
            raise
        return [replace(call, how=f"{call.how}: not compiled ({first_line(error)[:100]})") for call in calls]
    return [replace(call, function=compiled, how="compiled") for call in calls]
