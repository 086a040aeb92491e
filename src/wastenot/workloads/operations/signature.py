"""An operation's arguments as JSON: their layout, which of them share memory, and the values that determine its work.

    {"args": [{"tensor": 0}, {"tensor": 1}, 1.5, null], "kwargs": {"dim": [0, 1]},
     "tensors": [{"shape": [4, 8], "strides": [8, 1], "offset": 0, "dtype": "float32", "storage": 0, "values": {...}}],
     "storages": [128, 256]}

``storages`` holds the bytes of each piece of memory, ``storage`` the index of the one a tensor lies in: tensors that share
one share it when they are replayed. Offsets count elements from the first that the operation touches. Arguments without a
JSON equivalent are objects with one key: ``tensor``, ``dtype``, ``device``, ``layout``, ``memory_format``, ``float``,
``complex``, ``generator``, ``opaque``.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import torch

from wastenot.workloads.operations.tensor_values import described

REPLAY, HOST = "replay", "host"
_ALIGNMENT_BYTES = 16  # of the widest vector loads; the alignment of data within them decides which kernel runs


@dataclass(slots=True)
class Signature:
    """The arguments of one run of an operation.

    Attributes:
        arguments: the call's arguments, without the values of tensors.
        tensors: the tensors among them, in the order of the ``tensors`` table.
        on_accelerator: whether any of them is, or is to be, on a device other than the host.
    """

    arguments: dict[str, Any]
    tensors: list[torch.Tensor] = field(default_factory=list)
    on_accelerator: bool = False

    @property
    def key(self) -> str:
        """Text that is the same for all runs that differ only in the values of tensors."""
        return canonical(self.arguments)

    def with_values(self, operation: str, raw: tuple[Any, ...]) -> str:
        """The arguments as JSON, with what is needed to fill each tensor.

        Args:
            operation: name of the operation without namespace and overload, such as ``embedding``.
            raw: the positional arguments, which bound index values where tensors hold no data.
        """
        for entry, tensor in zip(self.arguments["tensors"], self.tensors, strict=True):
            if "opaque" not in entry:
                entry["values"] = described(tensor, operation, raw)
        return canonical(self.arguments)


def canonical(document: object) -> str:
    """Compact JSON, identical for identical documents."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def sign(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
    """Describe the arguments of an operation that is about to run; nothing is read from tensors."""
    kept: list[torch.Tensor] = []
    accelerator = _accelerator((*args, *kwargs.values()))

    def encode(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            kept.append(value)
            return {"tensor": len(kept) - 1}
        if isinstance(value, (list, tuple)):
            return [encode(item) for item in value]
        return _encode_other(value, accelerator)

    arguments: dict[str, Any] = {
        "args": [encode(value) for value in args],
        "kwargs": {name: encode(value) for name, value in kwargs.items()},
    }
    arguments["tensors"], arguments["storages"] = _layout(kept, accelerator)
    return Signature(arguments, kept, accelerator)


def flat_tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in an argument or result, including those in lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in flat_tensors(item)]
    return []


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Number of elements from the first to the last that a tensor touches."""
    if 0 in shape:
        return 0
    return sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1


def _accelerator(values: tuple[Any, ...]) -> bool:
    devices = [tensor.device for tensor in flat_tensors(values)]
    devices += [value for value in values if isinstance(value, torch.device)]
    return any(device.type != "cpu" for device in devices)


def _encode_other(value: Any, accelerator: bool) -> Any:  # noqa: PLR0911
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, torch.SymInt)):
        return int(value)
    if isinstance(value, (float, torch.SymFloat)):
        number = float(value)
        return number if math.isfinite(number) else {"float": str(number)}
    if isinstance(value, torch.SymBool):
        return bool(value)
    if isinstance(value, complex):
        return {"complex": [str(value.real), str(value.imag)]}
    if isinstance(value, torch.device):
        return {"device": HOST if accelerator and value.type == "cpu" else REPLAY}
    if isinstance(value, torch.Generator):
        return {"generator": None}
    for kind in ("dtype", "layout", "memory_format"):
        if isinstance(value, getattr(torch, kind)):
            return {kind: str(value).removeprefix("torch.")}
    return {"opaque": type(value).__name__}


def _layout(tensors: list[torch.Tensor], accelerator: bool) -> tuple[list[dict[str, Any]], list[int]]:
    """The tables of tensors and of the memory that holds them."""
    storages: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    plain = [tensor for tensor in tensors if why_opaque(tensor) is None]
    for tensor in plain:
        memory = storage_of(tensor)
        storages.setdefault(memory, len(storages))
        begin = int(tensor.storage_offset()) * tensor.itemsize
        first[memory] = min(first.get(memory, begin), begin)
        end = begin + extent(_ints(tensor.shape), _ints(tensor.stride())) * tensor.itemsize
        last[memory] = max(last.get(memory, end), end)
    base = {memory: begin - begin % _ALIGNMENT_BYTES for memory, begin in first.items()}
    table: list[dict[str, Any]] = []
    for tensor in tensors:
        reason = why_opaque(tensor)
        if reason is not None:
            table.append({"opaque": reason})
            continue
        memory = storage_of(tensor)
        entry: dict[str, Any] = {
            "shape": list(_ints(tensor.shape)),
            "strides": list(_ints(tensor.stride())),
            "offset": (int(tensor.storage_offset()) * tensor.itemsize - base[memory]) // tensor.itemsize,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "storage": storages[memory],
        }
        if accelerator and tensor.device.type == "cpu":
            entry["host"] = True
        table.append(entry)
    return table, [last[memory] - base[memory] for memory in storages]


def storage_of(tensor: torch.Tensor) -> int:
    """A number that identifies the memory of a tensor."""
    return int(tensor.untyped_storage()._cdata)


def why_opaque(tensor: torch.Tensor) -> str | None:
    """Why a tensor cannot be recreated from its layout; ``None`` where it can."""
    if tensor.layout is not torch.strided:
        return f"{str(tensor.layout).removeprefix('torch.')} tensor"
    if tensor.is_nested or tensor.is_quantized:
        return "nested tensor" if tensor.is_nested else "quantized tensor"
    if tensor.is_conj() or tensor.is_neg():
        return "tensor that is conjugated or negated when read"
    return None


def _ints(sizes: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in sizes)
