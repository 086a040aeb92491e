"""Softmax under a causal mask, and its gradient, as Triton kernels that read the lower triangle of the scores only.

PyTorch has no such operation: what it compiles from a mask reads the masked scores too. Imported only where Triton is.
"""

from __future__ import annotations

import importlib
from typing import Any

from torch import Tensor

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _forward(scores, out, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    visible = column <= row % size
    x = tl.load(scores + row * size + column, mask=visible, other=float("-inf")).to(tl.float32)
    x = tl.exp(x - tl.max(x, 0))
    tl.store(out + row * size + column, (x / tl.sum(x, 0)).to(out.dtype.element_ty), mask=visible)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _backward(grad, probabilities, out, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    visible = column <= row % size
    share = tl.load(probabilities + row * size + column, mask=visible, other=0.0).to(tl.float32)
    wide = tl.load(grad + row * size + column, mask=visible, other=0.0).to(tl.float32)
    result = share * (wide - tl.sum(share * wide, 0))
    tl.store(out + row * size + column, result.to(out.dtype.element_ty), mask=column < size)


def causal_softmax(scores: Tensor, out: Tensor) -> Tensor:
    """Softmax of rows of squares (squares·size, size), each up to the diagonal; beyond it ``out`` stays as it is."""
    rows, size = scores.shape
    _forward[(rows,)](scores, out, size, **_launch(size))
    return out


def causal_softmax_backward(grad: Tensor, probabilities: Tensor, out: Tensor) -> Tensor:
    """Gradient of :func:`causal_softmax` from its output, zero beyond the diagonal."""
    rows, size = grad.shape
    _backward[(rows,)](grad, probabilities, out, size, **_launch(size))
    return out


def _launch(size: int) -> dict[str, int]:
    block = int(triton.next_power_of_2(size))
    return {"block": block, "num_warps": min(max(block // 512, 1), 16)}
