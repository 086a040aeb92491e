"""The dispatch mode that records every operation, in every thread that autograd uses, and keeps one of each kind."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from wastenot.workloads.capturing.passes import Passes
from wastenot.workloads.capturing.work import base_name, describe
from wastenot.workloads.kernel import Call, KernelSpec
from wastenot.workloads.operations.signature import Signature, flat_tensors, sign, storage_of, why_opaque
from wastenot.workloads.parts import Work

VIEWS = "views and allocations, which run nothing on the device"
READ_BACK = "values read back to the host"
ON_HOST = "work on host memory beside a device"

_QUERY_NAMESPACES = ("prim", "prims", "profiler", "prepacked")  # queries of tensors and profilers, not operations
_QUERIES = ("sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "size", "stride", "numel", "dim", "storage_offset",
          "is_contiguous", "sym_is_contiguous", "is_strides_like_format", "is_non_overlapping_and_dense")  # fmt: skip
_ALLOCATES = ("empty", "new_empty", "resize", "set", "record_stream", "_resize_output")
_READS_BACK = ("equal", "is_nonzero", "item")
_COPIES_BACK = "_local_scalar_dense"  # of one element, which a GPU copies to the host


@dataclass(slots=True)
class _Kind:
    """A kind of operation: same name, pass and arguments, apart from the values of tensors."""

    op: str
    name: str
    pass_name: str
    work: Work
    arguments: str
    on_accelerator: bool
    count: int = 0


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records while it is the active mode; autograd propagates modes to the threads of the backward pass."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.passes = Passes()
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, str, str], _Kind] = {}
        self._seen = 0
        self._left_out: dict[str, Counter[str]] = {VIEWS: Counter(), READ_BACK: Counter(), ON_HOST: Counter()}
        self.device = "cpu"  # the kind of device that kernels ran on
        self._synthetic: set[str] = set()  # operations with integers or booleans that held no data

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """True: compiled code runs as it is, and what it calls through the dispatcher is recorded."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # the operations on the wrapped tensors are dispatched here next
        if not isinstance(func, HigherOrderOperator):
            if func.namespace in _QUERY_NAMESPACES or base_name(func) in _QUERIES:
                return func(*args, **named)
            if not _has_own_kernel(func, (*args, *named.values())):
                with self:
                    whole = func.decompose(*args, **named)
                if whole is not NotImplemented:
                    return whole
        return self._run(func, args, named)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name, reason = base_name(func), _why_left_out(func, args)
        if reason is not None:
            out = func(*args, **kwargs)
            self._leave_out(reason, func)
            return out
        signature = sign(args, kwargs)
        pass_name = self.passes.current()
        if name == "ones_like" and self.passes.seeds_backward():
            pass_name = "backward"
        key = (pass_name, _full_name(func), signature.key)
        with self._lock:
            known = self._kinds.get(key)
        arguments = self._arguments(func, name, signature, args) if known is None else ""
        out = func(*args, **kwargs)
        if _made_nothing(func, signature, out):
            self._leave_out(VIEWS, func)
            return out
        devices = {tensor.device.type for tensor in (*signature.tensors, *flat_tensors(out))} - {"cpu"}
        on_accelerator = signature.on_accelerator or bool(devices)
        if devices:
            self.device = min(devices)
        if known is None:
            work = describe(func, args, kwargs, out)
            known = _Kind(_full_name(func), name, pass_name, work, arguments, on_accelerator)
        with self._lock:
            self._seen += 1
            self._kinds.setdefault(key, known).count += 1
        return out

    def _arguments(self, func: Any, name: str, signature: Signature, args: tuple[Any, ...]) -> str:
        """The arguments needed to replay the operation, taken before it changes them."""
        precision = torch.get_float32_matmul_precision()
        if precision != "highest" and any(tensor.dtype == torch.float32 for tensor in signature.tensors):
            signature.arguments["matmul_precision"] = precision
        with _disable_current_modes():  # reading the values is not part of the user's step
            arguments = signature.with_values(name, args)
        values = [entry.get("values", {}) for entry in signature.arguments["tensors"]]
        if any("no_data" in each and each.keys() & {"range", "share"} for each in values):
            self._synthetic.add(_full_name(func))
        return arguments

    def _leave_out(self, reason: str, func: Any) -> None:
        with self._lock:
            self._seen += 1
            self._left_out[reason][_full_name(func)] += 1

    def result(self) -> tuple[tuple[KernelSpec, ...], int, Mapping[str, Mapping[str, int]], tuple[str, ...]]:
        """The kernels, the number of operations seen, those left out by reason, and notes."""
        kinds = list(self._kinds.values())
        if any(kind.on_accelerator for kind in kinds):
            for kind in kinds:
                if not kind.on_accelerator:
                    self._left_out[ON_HOST][kind.op] += kind.count
            kinds = [kind for kind in kinds if kind.on_accelerator]
        taken: set[str] = set()
        kernels = tuple(_kernel(kind, taken) for kind in kinds)
        notes = []
        if self._synthetic:
            notes.append(
                "there were no data to keep (fake tensors): integer and boolean inputs of "
                f"{', '.join(sorted(self._synthetic))} are random within their valid range"
            )
        left_out = {reason: dict(ops) for reason, ops in self._left_out.items() if ops}
        return kernels, self._seen, left_out, tuple(notes)


def _kernel(item: _Kind, taken: set[str]) -> KernelSpec:
    name = _unique(f"{item.pass_name}_{_readable(item.op, item.name)}{_sizes_text(item.work)}", taken)
    placed = item.work.placed(name, item.name.strip("_"), item.pass_name, None, item.count)
    return replace(placed, call=Call(item.op, item.arguments))


def _readable(op: str, name: str) -> str:
    namespace = op.split(".", maxsplit=1)[0]
    return name.strip("_") if namespace == "aten" else f"{namespace}_{name.strip('_')}"


def _sizes_text(work: Work) -> str:
    sizes = work.shape
    if work.op == "gemm":
        batches, m, n, k = sizes
        sizes = (m, k, n) if batches == 1 else (batches, m, k, n)
    return "_" + "x".join(map(str, sizes)) if sizes else ""


def _unique(name: str, taken: set[str]) -> str:
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    taken.add(unique)
    return unique


def _full_name(func: Any) -> str:
    return f"{func.namespace}.{func.__name__}" if isinstance(func, HigherOrderOperator) else str(func)


def _has_own_kernel(func: Any, values: tuple[Any, ...]) -> bool:
    """Whether the device has a kernel for an operation that could also be decomposed, such as ``silu_backward``."""
    devices = {tensor.device.type for tensor in flat_tensors(values)}
    keys = (torch._C._dispatch_key_for_device(device) for device in devices)
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key) for key in keys)


def _why_left_out(func: Any, args: tuple[Any, ...]) -> str | None:
    if isinstance(func, HigherOrderOperator):
        return None
    if func.is_view:
        return VIEWS
    name = base_name(func)
    if func.namespace == "aten" and (name in _READS_BACK or (name == _COPIES_BACK and args[0].device.type == "cpu")):
        return READ_BACK
    return VIEWS if func.namespace == "aten" and name.startswith(_ALLOCATES) else None


def _made_nothing(func: Any, signature: Signature, out: Any) -> bool:
    """Whether all outputs are memory of the inputs and nothing was written."""
    if isinstance(func, HigherOrderOperator):
        return False
    if func._schema.is_mutable:
        return bool(signature.tensors) and all(tensor.numel() == 0 for tensor in signature.tensors)
    inputs = {storage_of(tensor) for tensor in signature.tensors if why_opaque(tensor) is None}
    outputs = flat_tensors(out)
    if not outputs:
        return False
    return all(why_opaque(t) is None and (t.numel() == 0 or storage_of(t) in inputs) for t in outputs)
