"""What kind of kernel an analytical one is, from what it computes: the key by which a preset states traits.

A preset may state traits of ``softmax`` alone, or also of ``softmax-backward``. Kinds are told apart where other code runs
or memory is accessed in another way: implementations of attention, gradients, rows that do not fit into registers, changes
of layout that scatter. What decides is the operation that runs, as captured or as built in, and its sizes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from wastenot.workloads.attention import attention_backend
from wastenot.workloads.kernel import KernelSpec

Traits = TypeVar("Traits")

FEW_QUERIES = 16
"""Queries of a head up to which attention only reads keys and values, as in decoding."""

_SHORT_ROW, _WIDE_ROW = 1024, 16_384  # elements that a warp, and a block of threads, keeps in registers
_SKINNY = 64  # rows or columns of a product, all in one tile
_SPECIAL_FLOPS = 3.5  # of an element, beyond which there are exponentials or the like among them
_SCATTERED_DIMENSIONS = 5  # that cannot be merged, from which on finding an element's place takes longer
_EXTREMES = ("aten.amax", "aten.amin", "aten.argmax", "aten.argmin", "aten.max", "aten.min", "aten.sort", "aten.topk")


def traits_for(kernel: KernelSpec, ops: Mapping[str, Traits]) -> Traits:
    """The traits that apply to a kernel: those of its narrowest kind that is stated, else ``default``."""
    return next((ops[kind] for kind in kinds_of(kernel) if kind in ops), ops["default"])


def kinds_of(kernel: KernelSpec) -> tuple[str, ...]:
    """The kinds of a kernel, narrowest first; the last is its operation."""
    narrower = _NARROWER.get(kernel.op)
    found = narrower(kernel) if narrower is not None and kernel.shape else ()
    return (*(f"{kernel.op}-{kind}" for kind in found), kernel.op)


def _attention(kernel: KernelSpec) -> tuple[str, ...]:
    backend = attention_backend(kernel)
    if len(kernel.shape) == 5 and kernel.shape[2] <= FEW_QUERIES:
        return f"{backend}-decode", backend
    return (f"{backend}-by-head", backend) if _lies_by_head(kernel) else (backend,)


def _lies_by_head(kernel: KernelSpec) -> bool:
    """Whether a head's tokens lie one after another, as in built-in workloads, not the heads of a token."""
    if kernel.call is None:
        return True
    tensors = (tensor for tensor in _tensors(kernel) if len(tensor["shape"]) == 4)
    strides = next((tensor["strides"] for tensor in tensors), None)
    return strides is not None and strides[1] > strides[2]


def _softmax(kernel: KernelSpec) -> tuple[str, ...]:
    if kernel.name == "cross_entropy":  # loss and gradient in one kernel
        return ("loss",)
    rows, width = math.prod(kernel.shape[:-1]), kernel.shape[-1]
    whole = kernel.bytes_read > 0.75 * max(kernel.element_bytes, 1) * rows * width
    if _is_backward(kernel):
        return ("backward",) if whole and kernel.bytes_read > kernel.bytes_written * 1.5 else ("backward-causal", "backward")
    if not whole:
        return ("causal",)
    return ("short",) if width <= _SHORT_ROW else ("wide",) if width > _WIDE_ROW else ()


def _norm(kernel: KernelSpec) -> tuple[str, ...]:
    if _is_backward(kernel):
        return ("backward-captured", "backward") if kernel.call is not None else ("backward",)
    size = max(kernel.element_bytes, 1) * math.prod(kernel.shape)
    return ("residual",) if kernel.bytes_moved > 3 * size else ()


def _elementwise(kernel: KernelSpec) -> tuple[str, ...]:
    special = kernel.flops > _SPECIAL_FLOPS * math.prod(kernel.shape)
    if kernel.call is None:  # a built-in operation: GELU as PyTorch runs it, the others compiled to one kernel
        if special:
            return ("special",) if kernel.name.startswith("gelu") else ("special-fused", "special")
        return ("rotary",) if kernel.name.startswith("rotary") else ()
    if special:
        return ("special",)
    if kernel.bytes_read < 0.1 * kernel.bytes_written:
        return ("fill",)
    sizes = [math.prod(tensor.get("shape", ())) for tensor in _tensors(kernel)]
    return ("broadcast",) if any(1 < size < max(sizes) for size in sizes) else ()


def _permute(kernel: KernelSpec) -> tuple[str, ...]:
    if kernel.call is None:  # heads and positions swapped; the three parts of a packed layout are one dimension more
        return ("split",) if kernel.name.startswith("permute") else ()
    tensors = _tensors(kernel)
    if any(_merged(tensor) > 1 and tensor["strides"][-1] != 1 for tensor in tensors):
        return ("transpose",)
    if kernel.bytes_written > 1.5 * kernel.bytes_read:
        return ("widen", "copy")
    dimensions = max((_merged(tensor) for tensor in tensors), default=1)
    if dimensions <= 1:
        return ("copy",)
    return ("split",) if dimensions >= _SCATTERED_DIMENSIONS else ()


def _reduce(kernel: KernelSpec) -> tuple[str, ...]:
    if kernel.call is None:
        return ("positions",) if kernel.name == "wpe_backward" else ("partials",) if kernel.shape[0] < 64 else ("columns",)
    if kernel.call.op.startswith(_EXTREMES):
        return ("extremes",)
    shape = kernel.shape
    columns = len(shape) > 1 and kernel.bytes_written * shape[0] <= 1.5 * kernel.bytes_read and _first_only(kernel)
    return ("columns",) if columns else ()


def _gemm(kernel: KernelSpec) -> tuple[str, ...]:
    return ("skinny",) if len(kernel.shape) == 4 and min(kernel.shape[1:3]) <= _SKINNY and kernel.shape[0] == 1 else ()


_NARROWER: dict[str, Callable[[KernelSpec], tuple[str, ...]]] = {
    "attention": _attention,
    "attention_backward": _attention,
    "softmax": _softmax,
    "layernorm": _norm,
    "rmsnorm": _norm,
    "elementwise": _elementwise,
    "permute": _permute,
    "reduce": _reduce,
    "gemm": _gemm,
}


def _is_backward(kernel: KernelSpec) -> bool:
    return "backward" in (kernel.name if kernel.call is None else kernel.call.op)


def _tensors(kernel: KernelSpec) -> list[dict[str, Any]]:
    """The tensors that a captured operation is given."""
    assert kernel.call is not None
    tensors = json.loads(kernel.call.arguments).get("tensors", ())
    return [tensor for tensor in tensors if tensor.get("shape") and "strides" in tensor]


def _merged(tensor: dict[str, Any]) -> int:
    """Dimensions of a tensor that remain where those that lie one in another in memory are merged."""
    kept: list[tuple[int, int]] = []
    for size, stride in zip(tensor["shape"], tensor["strides"], strict=True):
        if size == 1:
            continue
        if kept and kept[-1][1] == size * stride:
            kept[-1] = kept[-1][0] * size, stride
        else:
            kept.append((size, stride))
    return len(kept)


def _first_only(kernel: KernelSpec) -> bool:
    """Whether a captured sum goes down the columns: over all dimensions but the last."""
    assert kernel.call is not None
    arguments = json.loads(kernel.call.arguments).get("args", ())
    over = arguments[1] if len(arguments) > 1 and isinstance(arguments[1], list) else ()
    last = len(kernel.shape) - 1
    return bool(over) and all(isinstance(each, int) and each % len(kernel.shape) != last for each in over)
