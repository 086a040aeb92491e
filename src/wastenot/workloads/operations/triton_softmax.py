"""Softmax under a causal mask, and its gradient, as Triton kernels that read the lower triangle of the scores only.

    column      0 ........ last ... reach ........ size
    reads       visible  |  rest of a  |  nothing
    writes      softmax  |  word: 0    |  nothing; the gradient is 0 here, because matrix products read it whole

PyTorch has no such operation: what it compiles from a mask reads the masked scores too. Imported only where Triton is.
"""

from __future__ import annotations

import importlib
from typing import Any

from torch import Tensor

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")

# Elements of a row that are read and written together. Cut off right at the diagonal, a row is moved one element at a time,
# which took an H200 1.4 times as long with rows of 1,024 and 1.8 times with 2,048. Memory moves 32 bytes, here 16 elements,
# at once all the same.
_WORD = 16


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _forward(scores, out, size, block: tl.constexpr, word: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    last = row % size
    reach = tl.minimum((last // word + 1) * word, size)
    start = row.to(tl.int64) * size
    column = tl.arange(0, block)
    x = tl.load(scores + start + column, mask=column < reach, other=0.0).to(tl.float32)
    x = tl.where(column <= last, x, float("-inf"))
    x = tl.exp(x - tl.max(x, 0))
    tl.store(out + start + column, (x / tl.sum(x, 0)).to(out.dtype.element_ty), mask=column < reach)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _backward(grad, probabilities, out, size, block: tl.constexpr, word: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    last = row % size
    reach = tl.minimum((last // word + 1) * word, size)
    start = row.to(tl.int64) * size
    column = tl.arange(0, block)
    share = tl.load(probabilities + start + column, mask=column < reach, other=0.0).to(tl.float32)
    wide = tl.load(grad + start + column, mask=column < reach, other=0.0).to(tl.float32)
    result = tl.where(column <= last, share * (wide - tl.sum(share * wide, 0)), 0.0)
    tl.store(out + start + column, result.to(out.dtype.element_ty), mask=column < size)


def causal_softmax(scores: Tensor, out: Tensor) -> Tensor:
    """Softmax of rows of squares (squares·size, size), each up to the diagonal; beyond it ``out`` must be zero already."""
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
    return {"block": block, "word": _WORD, "num_warps": min(max(block // 1024, 1), 16)}
