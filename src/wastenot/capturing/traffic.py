"""The least bytes that a captured operation moves: each input read once, each output written once."""

from __future__ import annotations

import math
from typing import Any

import torch

from wastenot.operations.signature import extent, flat_tensors, storage_of

_LOOKED_UP = {"embedding": 0, "index": 0, "_unsafe_index": 0, "index_select": 0, "gather": 0, "nll_loss_forward": 0}
_PARTLY_WRITTEN = ("index_put", "_index_put_impl", "scatter", "index_add", "index_copy", "index_fill")
_NOT_READ = {"nll_loss_backward": 1, "embedding_renorm": 0, "copy": 0, "fill": 0, "zero": 0, "normal": 0, "uniform": 0,
             "bernoulli": 0, "random": 0, "exponential": 0}  # fmt: skip
_MAKERS = ("zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_")


def moved_bytes(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> tuple[float, float]:
    """Bytes read and bytes written, memory that several arguments share counted once.

    Of a table that is looked up only as much is read as comes out, and of a tensor that is written at indices only as
    much is read and written as goes in.

    Args:
        func: the operation.
        name: of it, without namespace, overload and the mark of in-place ones.
        args: its positional arguments.
        kwargs: its named arguments.
        out: what it gave.
    """
    writes = _written_arguments(func)
    names = _argument_names(func)
    read, written = _Sum(), _Sum()
    inputs: set[int] = set()
    outputs = sum(_touched(tensor) for tensor in flat_tensors(out))
    brought = sum(_touched(tensor) for value in args[1:] for tensor in flat_tensors(value))
    for place, (argument, value) in enumerate([*zip(names, args, strict=False), *kwargs.items()]):
        for tensor in flat_tensors(value):
            inputs.add(_memory_of(tensor))
            most = _touched(tensor)
            if argument in writes:
                if name.startswith(_PARTLY_WRITTEN):
                    most = min(most, brought)
                written.add(tensor, most)
            if argument == "out" or _NOT_READ.get(name) == place or (place == 0 and name.startswith(_MAKERS)):
                continue
            if _LOOKED_UP.get(name) == place:
                indices = sum(index.numel() for other in args[1:] for index in flat_tensors(other))
                most = min(most, max(outputs, indices * tensor.itemsize))
            read.add(tensor, most)
    for tensor in flat_tensors(out):
        if _memory_of(tensor) not in inputs:
            written.add(tensor, _touched(tensor))
    return read.bytes, written.bytes


class _Sum:
    """Bytes by memory, none counted twice."""

    def __init__(self) -> None:
        self._seen: set[tuple[Any, ...]] = set()
        self.bytes = 0.0

    def add(self, tensor: torch.Tensor, count: float) -> None:
        view = (int(tensor.storage_offset()), tuple(tensor.shape), tuple(tensor.stride())) if _strided(tensor) else ()
        place = (_memory_of(tensor), *view)
        if place not in self._seen:
            self._seen.add(place)
            self.bytes += count


def _touched(tensor: torch.Tensor) -> int:
    if not _strided(tensor):
        return int(tensor._nnz() if hasattr(tensor, "_nnz") and tensor.is_sparse else tensor.numel()) * int(tensor.itemsize)
    sizes = [(int(size), int(stride)) for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    own = [(size, stride) for size, stride in sizes if stride != 0 or size == 0]  # broadcast ones are read once
    reach = extent(tuple(size for size, _ in own), tuple(stride for _, stride in own))
    return min(math.prod(size for size, _ in own), reach) * int(tensor.itemsize)


def _strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested


def _memory_of(tensor: torch.Tensor) -> int:
    return storage_of(tensor) if _strided(tensor) else -id(tensor)


def _argument_names(func: Any) -> list[str]:
    return [argument.name for argument in func._schema.arguments] if hasattr(func, "_schema") else []


def _written_arguments(func: Any) -> set[str]:
    if not hasattr(func, "_schema"):
        return set()
    written = {item.name for item in func._schema.arguments if item.alias_info is not None and item.alias_info.is_write}
    return written - {"grads"} if "_fused_" in func._schema.name else written  # unscaled in place only under a scaler
