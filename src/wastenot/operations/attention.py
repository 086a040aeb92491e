"""Attention in one kernel, and its gradient, with heads that share keys and values."""

from __future__ import annotations

import torch
from torch import Tensor

from wastenot.errors import CannotRunError
from wastenot.operations.prepared_call import Buffers, PreparedCall
from wastenot.workloads.kernel import KernelSpec

_CAUSAL = 0.75  # of the FLOPs of all scores; a causal mask leaves half


def attention(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Flash attention; each head's tokens lie one after another."""
    query, key, value = _inputs(kernel, make)
    forward = _flash if make.on_gpu else _flash_on_cpu
    return PreparedCall(forward, (query, key, value, _causal(kernel, 4.0)))


def attention_backward(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Gradients of queries, keys and values; PyTorch runs it as a few kernels."""
    query, key, value = _inputs(kernel, make)
    causal = _causal(kernel, 10.0)
    grad = make.normal(*query.shape)
    if not make.on_gpu:
        out, logarithm = _flash_on_cpu(query, key, value, causal)
        return PreparedCall(_flash_backward_on_cpu, (grad, query, key, value, out, logarithm, causal))
    found = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal)
    out, logarithm, _, _, most_queries, most_keys, state, unused, _ = found
    saved = (out, logarithm, None, None, most_queries, most_keys, 0.0, causal, state, unused)
    return PreparedCall(torch.ops.aten._scaled_dot_product_flash_attention_backward, (grad, query, key, value, *saved))


def _inputs(kernel: KernelSpec, make: Buffers) -> tuple[Tensor, Tensor, Tensor]:
    heads, groups, queries, keys, width = kernel.shape
    if make.on_gpu and (make.dtype != torch.bfloat16 or width % 8 or width > 256):
        what = f"heads {width} wide" if make.dtype == torch.bfloat16 else str(make.dtype).removeprefix("torch.")
        raise CannotRunError(f"{kernel.name}: PyTorch's flash attention does not take {what}; use unfused attention")
    if make.dtype == torch.float8_e4m3fn:
        raise CannotRunError(f"{kernel.name}: PyTorch has no fp8 attention; use bf16")
    return make.normal(1, heads, queries, width), make.normal(1, groups, keys, width), make.normal(1, groups, keys, width)


def _causal(kernel: KernelSpec, flops_a_score: float) -> bool:
    heads, _, queries, keys, width = kernel.shape
    return kernel.flops < _CAUSAL * flops_a_score * heads * queries * keys * width


def _flash(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    out, logarithm, *_ = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal)
    return out, logarithm


def _flash_on_cpu(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    out, logarithm = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal)
    return out, logarithm


def _flash_backward_on_cpu(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logarithm: Tensor, causal: bool
) -> object:
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return backward(grad, query, key, value, out, logarithm, 0.0, causal)
