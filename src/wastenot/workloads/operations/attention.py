"""Attention in one kernel, and its gradient, with heads that share keys and values, by PyTorch's implementations.

On a CPU, which has one of its own, all of them run that.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from wastenot.core.errors import CannotRunError
from wastenot.workloads.attention import attention_backend
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.operations.prepared_call import Buffers, PreparedCall

_CAUSAL = 0.75  # of the FLOPs of all scores; a causal mask leaves half
_WIDEST_HEAD = {"flash": 256, "cudnn": 128, "efficient": 1024}


def attention(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Attention; each head's tokens lie one after another."""
    forward = partial(_forward, attention_backend(kernel) if make.on_gpu else "cpu")
    return PreparedCall(forward, (*_inputs(kernel, make), _causal(kernel, 4.0)))


def attention_backward(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Gradients of queries, keys and values; PyTorch runs it as a few kernels."""
    query, key, value = _inputs(kernel, make)
    causal = _causal(kernel, 10.0)
    grad = make.normal(*query.shape)
    aten, inputs = torch.ops.aten, (grad, query, key, value)
    backend = attention_backend(kernel) if make.on_gpu else "cpu"
    out, logarithm, *saved = _forward(backend, query, key, value, causal)
    if backend == "cpu":
        arguments = (*inputs, out, logarithm, 0.0, causal)
        return PreparedCall(aten._scaled_dot_product_flash_attention_for_cpu_backward, arguments)
    if backend == "efficient":
        arguments = (*inputs, None, out, logarithm, *saved, 0.0, [True, True, True, False], causal)
        return PreparedCall(aten._scaled_dot_product_efficient_attention_backward, arguments)
    queries_at, keys_at, most_queries, most_keys, *random, _ = saved
    if backend == "cudnn":
        arguments = (*inputs, out, logarithm, *random, None, queries_at, keys_at, most_queries, most_keys, 0.0, causal)
        return PreparedCall(aten._scaled_dot_product_cudnn_attention_backward, arguments)
    arguments = (*inputs, out, logarithm, None, None, most_queries, most_keys, 0.0, causal, *random)
    return PreparedCall(aten._scaled_dot_product_flash_attention_backward, arguments)


def _inputs(kernel: KernelSpec, make: Buffers) -> tuple[Tensor, Tensor, Tensor]:
    heads, groups, queries, keys, width = kernel.shape
    backend = attention_backend(kernel)
    if make.on_gpu and (make.dtype != torch.bfloat16 or width % 8 or width > _WIDEST_HEAD[backend]):
        what = f"heads {width} wide" if make.dtype == torch.bfloat16 else str(make.dtype).removeprefix("torch.")
        raise CannotRunError(f"{kernel.name}: PyTorch's {backend} attention does not take {what}; use unfused attention")
    if make.on_gpu and backend == "efficient" and groups != heads:
        raise CannotRunError(
            f"{kernel.name}: PyTorch's efficient attention takes no {heads // groups} query heads to a key head; "
            "use flash or cudnn attention"
        )
    if make.dtype == torch.float8_e4m3fn:
        raise CannotRunError(f"{kernel.name}: PyTorch has no fp8 attention; use bf16")
    return make.normal(1, heads, queries, width), make.normal(1, groups, keys, width), make.normal(1, groups, keys, width)


def _causal(kernel: KernelSpec, flops_a_score: float) -> bool:
    heads, _, queries, keys, width = kernel.shape
    return kernel.flops < _CAUSAL * flops_a_score * heads * queries * keys * width


def _forward(backend: str, query: Tensor, key: Tensor, value: Tensor, causal: bool) -> tuple[Any, ...]:
    """The output, the logarithms of the sums of each row, and what else the gradient needs."""
    aten: Any = torch.ops.aten
    if backend == "efficient":
        found = aten._scaled_dot_product_efficient_attention(query, key, value, None, True, 0.0, causal)
    elif backend == "cudnn":
        found = aten._scaled_dot_product_cudnn_attention(query, key, value, None, True, 0.0, causal, False)
    elif backend == "cpu":
        found = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal)
    else:
        found = aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal)
    return tuple(found)
