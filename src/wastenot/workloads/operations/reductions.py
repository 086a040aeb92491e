"""Gradients of biases: sums over columns, in one step or by partial sums."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.operations.prepared_call import Buffers, PreparedCall, several

_FP32 = 4  # bytes of a partial sum


def column_sums(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Column sums added to the existing ones, or as many partial sums as the analytical kernel writes."""
    rows, width = kernel.shape
    splits = round(kernel.bytes_written / (_FP32 * width))
    grad = make.normal(rows, width)
    if splits <= 1:
        return PreparedCall(add_column_sums, (make.normal(width), grad), "eager, 2 operations")
    if rows % splits == 0:
        return PreparedCall(partial(torch.sum, dim=1, dtype=torch.float32), (grad.view(splits, rows // splits, width),))
    return PreparedCall(_uneven_sums, (grad, splits), "eager, 3 operations: the rows do not divide evenly")


def sum_of_partials(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Partial sums combined and added to the existing gradient."""
    splits, width = kernel.shape
    return several(add_partials, make.normal(width), make.normal(splits, width, dtype=torch.float32), parts=3)


def add_column_sums(total: Tensor, grad: Tensor) -> Tensor:
    """Sums of (rows, width) added to ``total`` in place."""
    return total.add_(grad.sum(0))


def add_partials(total: Tensor, partials: Tensor) -> Tensor:
    """Sum of (splits, width) in fp32 and ``total``, at the latter's data type."""
    return (total.float() + partials.sum(0)).to(total.dtype)


def _uneven_sums(grad: Tensor, splits: int) -> Tensor:
    each, width = grad.shape[0] // splits, grad.shape[1]
    sums = grad[: each * splits].view(splits, each, width).sum(1, dtype=torch.float32)
    sums[-1] += grad[each * splits :].sum(0, dtype=torch.float32)
    return sums
