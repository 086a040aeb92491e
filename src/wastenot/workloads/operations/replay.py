"""Replaying a captured operation alone, on its own memory.

In-place operations must stay replayable: run millions of times on the same memory, values must not vanish or overflow.

- A product or quotient in place is given factors of magnitude one with their original sign: the work and the memory traffic
  are the same, and magnitudes stay what they are.
- A sum in place grows by the same addend each time and stops growing where the addend falls below the last digit (2^8 times
  it in bfloat16, 2^24 in float32): finite, never zero. The same holds for moments and weights of optimizers.
- In-place roots, hyperbolic tangents and similar operations converge to their fixed point and are left to it; in-place
  exponentials and powers, which no training step known to us runs, are left unchanged.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import torch

from wastenot.core.errors import CannotRunError, DeviceError, first_line
from wastenot.workloads.kernel import Call
from wastenot.workloads.operations.signature import HOST
from wastenot.workloads.operations.tensor_values import fill

_WORD_BYTES = 512  # granularity of allocations


def prepare_call(call: Call, device: str, copies: int, *, seed: int = 0) -> list[Callable[[], object]]:
    """Prepare an operation to run again, each copy on its own buffers.

    Arguments that shared memory share it in each copy. Index values are those recorded; floating-point data is random and
    never zero. In-place operations may run any number of times. The first copy runs once, so that failures show here.

    Args:
        call: the operation.
        device: PyTorch's name of the device, such as ``cuda:0`` or ``cpu``. Operands that were on the host beside operands
            on a GPU stay on the host.
        copies: number of buffer sets.
        seed: seed of the random data, which differ between copies.

    Returns:
        For each copy a function that runs the operation once and returns its outputs.

    Raises:
        CannotRunError: the operation is unknown here, has arguments that cannot be recreated, does not run on the
            device, or needs more memory than there is.
        DeviceError: the GPU failed.
    """
    operation = _copy_back if call.op == "aten._local_scalar_dense.default" else find_operation(call.op)
    arguments = with_stable_factors(call.op, json.loads(call.arguments))
    try:
        target = torch.device(device)
        ready = [_Binding(operation, arguments, target, seed + copy).ready() for copy in range(copies)]
        for run in ready[:1]:
            run()
        if target.type == "cuda":
            torch.cuda.synchronize(target)
    except torch.OutOfMemoryError as error:
        raise CannotRunError(f"{call.op}: {device} has no memory for {copies} sets of its buffers") from error
    except torch.AcceleratorError as error:
        raise DeviceError(f"{call.op}: {device} failed: {first_line(error)}") from error
    except (RuntimeError, AssertionError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise CannotRunError(f"{call.op} cannot run on {device}: {first_line(error)}") from error
    return ready


def _copy_back(value: torch.Tensor) -> torch.Tensor:
    """The GPU work of reading one element, without waiting for it."""
    return value.to("cpu", non_blocking=True)


def find_operation(name: str) -> Any:
    """The operation that PyTorch knows by a name such as ``aten.addmm.default``.

    Raises:
        CannotRunError: there is none.
    """
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except (AttributeError, RuntimeError) as error:
        if namespace == "higher_order":
            raise CannotRunError(f"'{name}' takes functions as arguments and cannot be run alone") from error
        fix = (
            f"this PyTorch ({torch.__version__}) has no operation of that name"
            if namespace == "aten"
            else f"import the module that registers '{namespace}' operations first"
        )
        raise CannotRunError(f"unknown operation '{name}': {fix}") from error


class _Binding:
    """One set of buffers, and the arguments that use it."""

    def __init__(self, operation: Any, arguments: dict[str, Any], device: torch.device, seed: int) -> None:
        self._operation = operation
        self._arguments = arguments
        self._device = device
        self._generators = {kind.type: torch.Generator(kind).manual_seed(seed) for kind in {device, torch.device("cpu")}}
        self._storages: dict[tuple[int, bool], torch.UntypedStorage] = {}
        self._tensors = [self._allocate(entry) for entry in arguments["tensors"]]
        with torch.no_grad():
            self._fill()

    def ready(self) -> Callable[[], object]:
        """The operation bound to its arguments."""
        args = [self._decode(value) for value in self._arguments["args"]]
        kwargs = {name: self._decode(value) for name, value in self._arguments["kwargs"].items()}
        if not self._tensors and "device" in {argument.name for argument in self._operation._schema.arguments}:
            kwargs["device"] = kwargs.get("device") or self._device
        run = functools.partial(self._operation, *args, **kwargs)
        precision = self._arguments.get("matmul_precision")
        return run if precision is None else functools.partial(_with_precision, run, precision)

    def _allocate(self, entry: dict[str, Any]) -> torch.Tensor:
        if "opaque" in entry:
            raise ValueError(f"a {entry['opaque']} among its arguments cannot be recreated")
        on_host = bool(entry.get("host", False))
        device = torch.device("cpu") if on_host else self._device
        where = (entry["storage"], on_host)
        if where not in self._storages:
            size = -(-max(self._arguments["storages"][entry["storage"]], 1) // _WORD_BYTES) * _WORD_BYTES
            pinned = on_host and self._device.type == "cuda"
            memory = torch.empty(size, dtype=torch.uint8, device=device, pin_memory=pinned)
            self._storages[where] = memory.untyped_storage()
        empty = torch.empty(0, dtype=getattr(torch, entry["dtype"]), device=device)
        return empty.set_(self._storages[where], entry["offset"], tuple(entry["shape"]), tuple(entry["strides"]))

    def _fill(self) -> None:
        """Fill the tensors, those with known values last, so that they prevail where tensors share memory."""
        entries = list(zip(self._arguments["tensors"], self._tensors, strict=True))
        entries.sort(key=lambda pair: "like" not in pair[0]["values"])
        for entry, tensor in entries:
            fill(tensor, entry["values"], self._generators[tensor.device.type])

    def _decode(self, value: Any) -> Any:  # noqa: PLR0911
        if isinstance(value, list):
            return [self._decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "tensor":
            return self._tensors[content]
        if kind == "device":
            return torch.device("cpu") if content == HOST else self._device
        if kind in ("dtype", "layout", "memory_format"):
            return getattr(torch, content)
        if kind == "float":
            return float(content)
        if kind == "complex":
            return complex(float(content[0]), float(content[1]))
        if kind == "generator":
            return None
        raise ValueError(f"an argument of type {content} cannot be recreated")


def _with_precision(run: Callable[[], object], precision: str) -> object:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        return run()
    finally:
        torch.set_float32_matmul_precision(before)


_PRODUCTS = ("mul_", "div_", "multiply_", "divide_", "_foreach_mul_", "_foreach_div_")


def with_stable_factors(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operation, changed where repeating it in place would end in zeros or infinities.

    Args:
        operation: such as ``aten.mul_.Tensor``.
        arguments: see :mod:`wastenot.workloads.operations.signature`; not changed.
    """
    name = operation.split(".")[1]
    args = arguments["args"]
    if name not in _PRODUCTS or len(args) < 2:
        return arguments
    tensors = [dict(tensor) for tensor in arguments["tensors"]]
    factor = _of_magnitude_one(args[1], tensors)
    return arguments | {"args": [args[0], factor, *args[2:]], "tensors": tensors}


def _of_magnitude_one(factor: Any, tensors: list[dict[str, Any]]) -> Any:
    if isinstance(factor, list):
        return [_of_magnitude_one(part, tensors) for part in factor]
    if isinstance(factor, dict) and "tensor" in factor:
        tensor = tensors[factor["tensor"]]
        if tensor.get("values", {}).keys() & {"like", "value"}:
            tensor["values"] = _signs(tensor["values"])
        return factor
    if isinstance(factor, (int, float)) and not isinstance(factor, bool):
        return type(factor)(-1 if factor < 0 else 1)
    if isinstance(factor, dict) and "float" in factor:
        return 1.0
    return factor


def _signs(values: dict[str, Any]) -> dict[str, Any]:
    value = values.get("value")
    if value is None:
        return {"like": "signs"}
    if isinstance(value, bool):
        return values
    return {"value": -1 if isinstance(value, (int, float)) and value < 0 else 1}
