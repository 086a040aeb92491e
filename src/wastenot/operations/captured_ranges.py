"""What tensors without data may be filled with so that their operation is valid: indices, and positive numbers."""

from __future__ import annotations

from typing import Any

import torch

_POSITIVE = (
    "sqrt", "log", "pow", "bernoulli", "multinomial", "addcdiv", "adam", "adagrad", "batch_norm", "norm_backward",
    "binary_cross_entropy", "acos", "asin", "atanh", "acosh", "exponential",
)  # fmt: skip
_INDEXED_DIMENSION = ("index_select", "gather", "scatter", "index_add", "index_copy", "index_fill", "take_along_dim")


def wants_positive(operation: str) -> bool:
    """Whether an operation takes roots, logarithms, variances or probabilities of what it is given."""
    return any(word in operation for word in _POSITIVE)


def index_bound(operation: str, raw: tuple[Any, ...]) -> int:
    """The greatest index that is valid for every integer tensor of an operation.

    Args:
        operation: name without namespace and overload.
        raw: its positional arguments.
    """
    sizes = _indexed(operation.strip("_"), raw) or _all_sizes(raw)
    return max(min(sizes, default=1) - 1, 0)


def _indexed(name: str, raw: tuple[Any, ...]) -> list[int]:  # noqa: PLR0911
    """Sizes of the dimensions that an operation is known to look up."""
    shapes = [value.shape if isinstance(value, torch.Tensor) else None for value in raw]
    first = shapes[0] if shapes else None
    if name == "embedding_dense_backward":
        return [int(raw[2])]
    if first is None:
        return []
    if name in ("embedding", "embedding_bag", "embedding_renorm"):
        return [int(first[0])]
    if name.startswith("nll_loss"):
        logits = shapes[1] if "backward" in name and shapes[1] is not None else first
        return [int(logits[1] if len(logits) > 1 else logits[0])]
    if name.startswith(_INDEXED_DIMENSION) and len(raw) > 1 and isinstance(raw[1], int):
        return [int(first[raw[1]])] if len(first) else [1]
    if name in ("index", "unsafe_index", "index_put", "unsafe_index_put", "index_put_impl"):
        return [int(size) for size, index in zip(first, raw[1], strict=False) if index is not None]
    return []


def _all_sizes(raw: tuple[Any, ...]) -> list[int]:
    """Every dimension of every floating-point tensor: an index below the least of them is valid in each."""
    tensors = [value for value in raw if isinstance(value, torch.Tensor) and value.is_floating_point()]
    return [int(size) for tensor in tensors for size in tensor.shape]
