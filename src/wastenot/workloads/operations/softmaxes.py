"""Softmax over scores, causal or whole, its gradient, and the loss: cross entropy with its gradient."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

import torch
from torch import Tensor

from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.operations.prepared_call import Buffers, PreparedCall, several

_CAUSAL = 0.75  # a mask that leaves less than this fraction of the scores counts as causal, which leaves half
_TRITON = "Triton kernel"
_WIDEST_ROW = 16_384  # that the Triton kernels hold in registers


def softmax(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Softmax of each row; under a causal mask row i of each square of scores goes up to its element i."""
    rows, keys = kernel.shape
    scores = make.normal(rows, keys)
    if kernel.bytes_read >= _CAUSAL * scores.nbytes:
        return PreparedCall(torch.softmax, (scores, -1))
    triton = _triton_kernels(make, keys)
    if triton is None:
        return several(causal_softmax, scores, parts=4)
    out = torch.zeros_like(scores)  # above the diagonal it stays so
    return PreparedCall(triton.causal_softmax, (scores, out), _TRITON)


def softmax_backward(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Gradient of the scores, out of place, so that the incoming gradient stays random."""
    rows, keys = kernel.shape
    grad, scores = make.normal(rows, keys), make.normal(rows, keys)
    if kernel.bytes_read >= _CAUSAL * 2 * scores.nbytes:
        probabilities = torch.softmax(scores, -1)
        return PreparedCall(torch.ops.aten._softmax_backward_data, (grad, probabilities, -1, make.dtype))
    triton = _triton_kernels(make, keys)
    if triton is None:
        return several(causal_softmax_backward, grad, causal_softmax(scores), parts=6)
    probabilities = triton.causal_softmax(scores, torch.zeros_like(scores))
    out = scores  # its room is free again
    return PreparedCall(triton.causal_softmax_backward, (grad, probabilities, out), _TRITON)


def cross_entropy(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Loss of each row and gradient of its logits, out of place: in place the logits would soon be all alike."""
    rows, vocabulary = kernel.shape
    return several(cross_entropy_and_gradient, make.normal(rows, vocabulary), make.indices(rows, vocabulary), parts=10)


def causal_softmax(scores: Tensor) -> Tensor:
    """Softmax of rows of squares (squares·size, size), each up to the diagonal; zero beyond."""
    visible = _visible(scores)
    squares = scores.view(-1, *visible.shape).float()
    return torch.softmax(squares.masked_fill(~visible, -torch.inf), -1).to(scores.dtype).view_as(scores)


def causal_softmax_backward(grad: Tensor, probabilities: Tensor) -> Tensor:
    """Gradient of :func:`causal_softmax` from its output, zero beyond the diagonal."""
    visible = _visible(grad)
    wide = grad.view(-1, *visible.shape).float().masked_fill(~visible, 0.0)
    share = probabilities.view(-1, *visible.shape).float()
    return (share * (wide - (share * wide).sum(-1, keepdim=True))).to(grad.dtype).view_as(grad)


def cross_entropy_and_gradient(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of each row in fp32, and gradient of the mean loss by the logits, at their data type."""
    wide = logits.float()
    largest = wide.amax(-1, keepdim=True)
    logarithm = largest + (wide - largest).exp().sum(-1, keepdim=True).log()
    target = targets.long().unsqueeze(-1)
    loss = (logarithm - wide.gather(-1, target)).squeeze(-1)
    hit = torch.arange(logits.shape[-1], device=logits.device) == target
    grad = ((wide - logarithm).exp() - hit.float()) / logits.shape[0]
    return loss, grad.to(logits.dtype)


def _visible(scores: Tensor) -> Tensor:
    size = scores.shape[-1]
    return torch.ones(size, size, dtype=torch.bool, device=scores.device).tril()


def _triton_kernels(make: Buffers, keys: int) -> ModuleType | None:
    if not make.on_gpu or keys > _WIDEST_ROW or importlib.util.find_spec("triton") is None:
        return None
    return importlib.import_module("wastenot.workloads.operations.triton_softmax")
