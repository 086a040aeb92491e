"""Matrix products, laid out in memory as training and inference have them."""

from __future__ import annotations

import torch
from torch import Tensor

from wastenot.core.errors import CannotRunError
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.operations.prepared_call import Buffers, PreparedCall

# Products of (m × k) with (k × n) as both lie in memory: gradients of inputs, and what weighs values or keys by scores.
_PLAIN = ("_dinput_gemm", "values_gemm", "scores_dquery_gemm")
# Products of what lies in memory as (k × m) with (k × n): sums over tokens, for gradients of weights, keys and values.
_OVER_ROWS = ("_dweight_gemm", "values_dvalues_gemm", "scores_dkey_gemm")
# All others are of (m × k) with what lies as (n × k): inputs with weights, queries with keys.


def gemm(kernel: KernelSpec, make: Buffers) -> PreparedCall:
    """A product, or one accumulated into its output, as gradients of weights are.

    Raises:
        CannotRunError: PyTorch has no such product of this data type.
    """
    batches, m, n, k = kernel.shape
    accumulate = kernel.bytes_read > make.dtype.itemsize * batches * (m * k + k * n)
    if make.dtype == torch.float8_e4m3fn:
        return _fp8(kernel, make, accumulate)
    over_rows = kernel.name.endswith(_OVER_ROWS)
    plain = over_rows or kernel.name.endswith(_PLAIN)
    left = make.normal(batches, k, m).transpose(1, 2) if over_rows else make.normal(batches, m, k)
    right = make.normal(batches, k, n) if plain else make.normal(batches, n, k).transpose(1, 2)
    if batches > 1:
        if accumulate:
            return PreparedCall(Tensor.baddbmm_, (make.normal(batches, m, n), left, right))
        return PreparedCall(torch.bmm, (left, right))
    if accumulate:
        return PreparedCall(Tensor.addmm_, (make.normal(m, n), left[0], right[0]))
    return PreparedCall(torch.mm, (left[0], right[0]))


def _fp8(kernel: KernelSpec, make: Buffers, accumulate: bool) -> PreparedCall:
    """A scaled product, whose left side lies by rows and whose right side by columns; its output is bf16."""
    batches, m, n, k = kernel.shape
    if batches > 1 or accumulate or k % 16 or n % 16:
        why = "in batches" if batches > 1 else "that adds to its output" if accumulate else "of sizes not divisible by 16"
        raise CannotRunError(f"{kernel.name}: PyTorch has no fp8 product {why}; use bf16")
    left = make.normal(m, k, dtype=torch.bfloat16).to(make.dtype)
    right = make.normal(n, k, dtype=torch.bfloat16).to(make.dtype).t()
    scale = torch.ones((), device=make.device)
    return PreparedCall(_scaled_product, (left, right, scale), "one operation, output bf16")


def _scaled_product(left: Tensor, right: Tensor, scale: Tensor) -> Tensor:
    return torch._scaled_mm(left, right, scale, scale, out_dtype=torch.bfloat16)
