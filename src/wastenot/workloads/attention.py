"""Which implementation a fused attention kernel is: they differ by factors in time, on the same FLOPs and bytes."""

from __future__ import annotations

from typing import Literal, get_args

from wastenot.workloads.kernel import KernelSpec

AttentionBackend = Literal["flash", "cudnn", "efficient"]
"""FlashAttention-2, cuDNN's, and memory-efficient attention, by PyTorch's names."""

BACKENDS: tuple[AttentionBackend, ...] = get_args(AttentionBackend)


def fused_name(backend: str, *, backward: bool = False) -> str:
    """Name of the kernel of an analytical workload; FlashAttention-2's says no more than what it is."""
    which = "" if backend == "flash" else f"_{backend}"
    return f"attention{which}{'_backward' if backward else ''}"


def attention_backend(kernel: KernelSpec) -> AttentionBackend:
    """The implementation that a fused attention kernel runs: by the operation captured, or else by its name.

    FlashAttention-2 where neither says.
    """
    says = kernel.name if kernel.call is None else kernel.call.op
    return next((backend for backend in BACKENDS if backend in says), "flash")
