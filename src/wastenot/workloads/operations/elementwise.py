"""Elementwise operations: activations, products, rotations, changes of layout.

Analytical kernels only specify the number of elements. Where heads and positions matter, usual sizes are assumed (heads of
width 128, 16 heads, 1,024 positions) or their greatest common divisors with the number of elements. They determine the order
in which memory is traversed, not how much of it.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import gelu as torch_gelu, silu

from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.operations.prepared_call import Buffers, PreparedCall, several

_HEAD_WIDTH, _HEADS, _POSITIONS = 128, 16, 1024
_ROTARY_BASE = 10_000.0


def gelu(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """GELU by its tanh approximation."""
    return PreparedCall(partial(torch_gelu, approximate="tanh"), (make.normal(*kernel.shape),))


def gelu_backward(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Its gradient."""
    backward = partial(torch.ops.aten.gelu_backward, approximate="tanh")
    return PreparedCall(backward, (make.normal(*kernel.shape), make.normal(*kernel.shape)))


def silu_product(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """SiLU of the gate times the other half."""
    return several(multiply_by_silu, make.normal(*kernel.shape), make.normal(*kernel.shape), parts=2)


def silu_product_backward(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Gradients of both halves."""
    inputs = (make.normal(*kernel.shape) for _ in range(3))
    return several(multiply_by_silu_backward, *inputs, parts=5)


def rotary(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Rotary embedding of each head, forward or backward, out of place: in place, repeats would round away random bits."""
    heads = _in_heads(kernel.shape[0])
    angles = _angles(heads[1], heads[3], make.device)
    if "backward" in kernel.name:
        angles = -angles
    return several(rotate, make.normal(*heads), angles.cos(), angles.sin(), parts=8)


def permute(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Transpose tokens into heads or back, splitting queries, keys and values where they are packed."""
    parts = 3 if kernel.name.startswith("permute") else 1
    sequences, positions, heads, width = _in_heads(kernel.shape[0] // parts)
    into_heads = kernel.name in {"permute_qkv", "unpermute_backward"}
    if into_heads:
        tensor = make.normal(sequences, positions, parts, heads, width).permute(2, 0, 3, 1, 4)
    else:
        tensor = make.normal(parts, sequences, heads, positions, width).permute(1, 3, 0, 2, 4)
    return PreparedCall(partial(torch.clone, memory_format=torch.contiguous_format), (tensor,))


def multiply_by_silu(gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) · up``."""
    return (silu(gate.float()) * up.float()).to(gate.dtype)


def multiply_by_silu_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of ``gate`` and ``up`` from that of their product."""
    wide, x = grad.float(), gate.float()
    share = torch.sigmoid(x)
    grad_gate = wide * up.float() * share * (1.0 + x * (1.0 - share))
    return grad_gate.to(gate.dtype), (wide * x * share).to(gate.dtype)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate the two halves of each head against each other.

    Args:
        x: (sequences, positions, heads, width).
        cosine: of the angles, (positions, width / 2) in fp32.
        sine: of the angles.
    """
    half = x.shape[-1] // 2
    first, second = x[..., :half].float(), x[..., half:].float()
    cosine, sine = cosine[:, None, :], sine[:, None, :]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1).to(x.dtype)


def _in_heads(elements: int) -> tuple[int, int, int, int]:
    """Sequences, positions, heads and width."""
    width = math.gcd(elements, _HEAD_WIDTH)
    heads = math.gcd(elements // width, _HEADS)
    positions = math.gcd(elements // width // heads, _POSITIONS)
    return elements // width // heads // positions, positions, heads, width


def _angles(positions: int, width: int, device: torch.device) -> Tensor:
    frequencies = _ROTARY_BASE ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
    return torch.arange(positions, device=device, dtype=torch.float32)[:, None] * frequencies
