"""Layer norm and RMS norm, with the residual sum that goes before them, and their gradients; statistics in fp32."""

from __future__ import annotations

import torch
from torch import Tensor

from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.operations.prepared_call import Buffers, PreparedCall, several

_EPSILON = 1e-5


def norm(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """The norm of each row."""
    rows, width = kernel.shape
    x, weight = make.normal(rows, width), make.normal(width)
    if kernel.op == "layernorm":
        return PreparedCall(torch.native_layer_norm, (x, [width], weight, make.normal(width), _EPSILON))
    if make.on_gpu and hasattr(torch.ops.aten, "_fused_rms_norm"):
        return PreparedCall(torch.ops.aten._fused_rms_norm, (x, [width], weight, _EPSILON))
    return several(rms_norm, x, weight, parts=6)


def residual_norm(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """The sum of two inputs, kept, and its norm."""
    rows, width = kernel.shape
    x, y, weight = make.normal(rows, width), make.normal(rows, width), make.normal(width)
    if kernel.op == "layernorm":
        return several(residual_layer_norm, x, y, weight, make.normal(width), parts=2)
    return several(residual_rms_norm, x, y, weight, parts=7)


def norm_backward(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Gradients of a norm's input, added to the gradient that bypasses it, and of its weights, added to theirs."""
    rows, width = kernel.shape
    grad, x, passing = (make.normal(rows, width) for _ in range(3))
    weight, grad_weight = make.normal(width), make.normal(width)
    if kernel.op == "layernorm":
        bias, grad_bias = make.normal(width), make.normal(width)
        _, mean, deviation = torch.native_layer_norm(x, [width], weight, bias, _EPSILON)
        statistics = mean.float(), deviation.float()
        return several(layer_norm_backward, grad, x, passing, weight, *statistics, grad_weight, grad_bias, parts=20)
    _, deviation = rms_norm(x, weight)
    return several(rms_norm_backward, grad, x, passing, weight, deviation, grad_weight, parts=15)


def rms_norm(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """RMS norm and the reciprocals of the rows' root mean squares, (rows, 1) in fp32."""
    wide = x.float()
    deviation = torch.rsqrt(wide.square().mean(-1, keepdim=True) + _EPSILON)
    return (wide * deviation * weight.float()).to(x.dtype), deviation


def residual_rms_norm(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of two, its RMS norm and statistics."""
    total = x + y
    return total, *rms_norm(total, weight)


def residual_layer_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum of two, its layer norm and statistics."""
    total = x + y
    normed, mean, deviation = torch.native_layer_norm(total, [total.shape[-1]], weight, bias, _EPSILON)
    return total, normed, mean, deviation


def layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    passing: Tensor,
    weight: Tensor,
    mean: Tensor,
    deviation: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a layer norm's input, weight and bias.

    Args:
        grad: of its output, (rows, width).
        x: its input, (rows, width).
        passing: gradient that the input's is added to.
        weight: (width,).
        mean: of the rows, (rows, 1) in fp32.
        deviation: reciprocals of their standard deviations.
        grad_weight: that the weight's is added to.
        grad_bias: that the bias's is added to.
    """
    wide = grad.float()
    normed = (x.float() - mean) * deviation
    scaled = wide * weight.float()
    along = (scaled * normed).mean(-1, keepdim=True)
    grad_x = deviation * (scaled - scaled.mean(-1, keepdim=True) - normed * along)
    return (
        (grad_x + passing.float()).to(x.dtype),
        ((wide * normed).sum(0) + grad_weight.float()).to(x.dtype),
        (wide.sum(0) + grad_bias.float()).to(x.dtype),
    )


def rms_norm_backward(
    grad: Tensor, x: Tensor, passing: Tensor, weight: Tensor, deviation: Tensor, grad_weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of an RMS norm's input and weight; arguments as of :func:`layer_norm_backward`."""
    wide = grad.float()
    normed = x.float() * deviation
    scaled = wide * weight.float()
    grad_x = deviation * (scaled - normed * (scaled * normed).mean(-1, keepdim=True))
    return (grad_x + passing.float()).to(x.dtype), ((wide * normed).sum(0) + grad_weight.float()).to(x.dtype)
