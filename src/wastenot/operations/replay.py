"""Running a captured operation again, alone, on memory of its own."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import torch

from wastenot.errors import CannotRunError, DeviceError
from wastenot.operations.signature import HOST
from wastenot.operations.tensor_values import fill
from wastenot.workloads.call import Call

_WORD_BYTES = 512  # memory is allocated in such pieces


def prepare_call(call: Call, device: str, copies: int, *, seed: int = 0) -> list[Callable[[], object]]:
    """Make an operation ready to run again, each copy on buffers of its own that nothing else uses.

    Arguments that shared memory share it in each copy. Index values are those recorded, floating-point data is random
    and never zero. An operation that writes in place may run any number of times; see
    :mod:`wastenot.operations.replay`. The first copy is run once, so that what cannot run is known here.

    Args:
        call: the operation.
        device: PyTorch's name of the device, such as ``cuda:0`` or ``cpu``. What was on the host beside operands on a
            GPU stays on the host.
        copies: how many sets of buffers to make.
        seed: of the random data; each copy has other data.

    Returns:
        For each copy a function that runs the operation once and gives its outputs.

    Raises:
        CannotRunError: the operation is unknown here, has arguments that cannot be made again, does not run on the
            device, or needs more memory than there is.
        DeviceError: the GPU failed.
    """
    operation = _copy_back if call.op == "aten._local_scalar_dense.default" else find_operation(call.op)
    arguments = steadied(call.op, json.loads(call.arguments))
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
        raise DeviceError(f"{call.op}: {device} failed: {str(error).strip().splitlines()[0]}") from error
    except (RuntimeError, AssertionError, TypeError, ValueError, LookupError, AttributeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise CannotRunError(f"{call.op} cannot run on {device}: {lines[0]}") from error
    return ready


def _copy_back(value: torch.Tensor) -> torch.Tensor:
    """What reading one element does on the GPU, without waiting for it."""
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
        mend = (
            f"this PyTorch ({torch.__version__}) has none of that name"
            if namespace == "aten"
            else f"import the module that registers '{namespace}' operations first"
        )
        raise CannotRunError(f"unknown operation '{name}': {mend}") from error


class _Binding:
    """One set of buffers, and the arguments made of it."""

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
        """The operation with its arguments."""
        args = [self._decode(value) for value in self._arguments["args"]]
        kwargs = {name: self._decode(value) for name, value in self._arguments["kwargs"].items()}
        takes = {argument.name for argument in self._operation._schema.arguments}
        if "device" in takes and kwargs.get("device") is None and not self._tensors:
            kwargs["device"] = self._device
        run = functools.partial(self._operation, *args, **kwargs)
        precision = self._arguments.get("matmul_precision")
        return run if precision is None else functools.partial(_with_precision, run, precision)

    def _allocate(self, entry: dict[str, Any]) -> torch.Tensor:
        if "opaque" in entry:
            raise ValueError(f"a {entry['opaque']} among its arguments cannot be made again")
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
        """Fill the tensors; of those that share memory, ones with known values come last and are right."""
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
        raise ValueError(f"an argument of type {content} cannot be made again")


def _with_precision(run: Callable[[], object], precision: str) -> object:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        return run()
    finally:
        torch.set_float32_matmul_precision(before)


_PRODUCTS = ("mul_", "div_", "multiply_", "divide_", "_foreach_mul_", "_foreach_div_")


def steadied(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operation, changed where running it in place again and again would end in zeros or infinities.

    Args:
        operation: such as ``aten.mul_.Tensor``.
        arguments: see :mod:`wastenot.operations.signature`; not changed.
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
