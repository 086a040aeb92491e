"""Rows looked up in tables, and gradients summed into them.

Analytical kernels specify how many rows are touched, not how many the tables have: tables are made that long, and each of
their rows is touched about equally often.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import embedding as torch_embedding

from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.operations.prepared_call import Buffers, PreparedCall, several

_TOKEN = 4  # bytes
_POSITIONS = 1024  # usual, where tokens fill their table and nothing else says how many positions there are


def embedding(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Rows by token."""
    rows, width = kernel.shape
    touched = _table_rows(kernel, make)
    return PreparedCall(torch_embedding, (make.indices(rows, touched, cover=True), make.normal(touched, width)))


def embedding_with_positions(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Rows by token plus rows by position."""
    rows, width = kernel.shape
    touched = _table_rows(kernel, make)
    positions = touched - rows if touched > rows else math.gcd(rows, _POSITIONS)
    tokens = touched - positions
    tables = make.normal(tokens, width), make.normal(positions, width)
    return several(look_up_with_positions, make.indices(rows, tokens, cover=True), *tables, parts=2)


def embedding_backward(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Gradient of the token table; PyTorch sorts the tokens first. It is computed afresh, not accumulated."""
    rows, width = kernel.shape
    touched = max(1, round(kernel.bytes_written / (make.dtype.itemsize * width)))
    arguments = (make.normal(rows, width), make.indices(rows, touched, cover=True), touched, -1, False)
    return PreparedCall(torch.ops.aten.embedding_dense_backward, arguments, "one operation of several kernels")


def positions_backward(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """Gradient of the position table, added to the existing one."""
    rows, width = kernel.shape
    positions = max(1, round(kernel.bytes_written / (make.dtype.itemsize * width)))
    return several(add_by_position, make.normal(positions, width), make.normal(rows, width), parts=2)


def look_up_with_positions(tokens: Tensor, by_token: Tensor, by_position: Tensor) -> Tensor:
    """Rows of one table by token, plus those of another by position."""
    rows = torch_embedding(tokens, by_token).view(-1, *by_position.shape)
    return (rows + by_position).view(-1, by_position.shape[-1])


def add_by_position(total: Tensor, grad: Tensor) -> Tensor:
    """Sum over sequences, added to ``total``: (positions, width)."""
    return (total.float() + grad.view(-1, *total.shape).float().sum(0)).to(total.dtype)


def _table_rows(kernel: KernelSpec, make: Buffers) -> int:
    rows, width = kernel.shape
    return max(1, round((kernel.bytes_read - _TOKEN * rows) / (make.dtype.itemsize * width)))
