"""What a captured operation does: its kind, sizes, FLOPs, and the minimum of bytes that it moves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from wastenot.workloads.kernel import Op
from wastenot.workloads.operations.signature import extent, flat_tensors, storage_of
from wastenot.workloads.parts import Work

_FACTORS = {
    "mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "_scaled_mm": (0, 1), "_int_mm": (0, 1),
    "_addmm_activation": (1, 2), "addbmm": (1, 2),
}  # fmt: skip
_BY_WORD: tuple[tuple[Op, tuple[str, ...]], ...] = (
    ("attention_backward", ("attention_backward", "attention_for_cpu_backward")),
    ("attention", ("dot_product", "flash_attention", "efficient_attention", "flex_attention")),
    ("rmsnorm", ("rms_norm",)),
    ("layernorm", ("layer_norm", "group_norm", "batch_norm")),
    ("softmax", ("softmax",)),
    ("optimizer", ("_fused_adam", "_fused_sgd", "_fused_adagrad", "_foreach_")),
    ("embedding_backward", ("embedding_dense_backward", "embedding_backward")),
    ("embedding", ("embedding", "index", "gather", "scatter", "take", "masked_select")),
)
_PERMUTING = {
    "clone", "copy", "_to_copy", "cat", "stack", "repeat", "constant_pad_nd", "roll", "flip", "contiguous", "slice_backward",
    "select_backward", "unfold_backward", "slice_scatter", "select_scatter", "_pin_memory", "tril", "triu",
    "split_with_sizes_copy",
}  # fmt: skip
_REDUCING = {
    "sum", "mean", "prod", "amax", "amin", "aminmax", "max", "min", "argmax", "argmin", "any", "all", "norm", "var", "std",
    "var_mean", "std_mean", "logsumexp", "linalg_vector_norm", "cumsum", "cumprod", "sort", "topk", "nll_loss_forward",
    "nll_loss_backward", "mse_loss", "dot", "mv",
}  # fmt: skip
_ELEMENTWISE = {
    "zeros", "ones", "full", "zero", "fill", "arange", "new_zeros", "new_ones", "new_full", "normal", "uniform", "bernoulli",
    "randn", "rand", "randint", "native_dropout", "masked_fill", "where",
}  # fmt: skip
_FLOPS_PER_ELEMENT: dict[Op, tuple[float, float]] = {  # forward, backward; as analytical kernels count them
    "layernorm": (8.0, 14.0), "rmsnorm": (4.0, 10.0), "softmax": (5.0, 4.0), "embedding": (0.0, 1.0),
    "embedding_backward": (1.0, 1.0),
    "permute": (0.0, 0.0), "reduce": (1.0, 1.0), "elementwise": (1.0, 1.0),
}  # fmt: skip
_POINTWISE_FLOPS = {  # of an element, an exponential or the like being one; 1 for others
    "gelu": 10.0, "gelu_backward": 15.0, "silu": 5.0, "silu_backward": 9.0, "sigmoid": 4.0, "sigmoid_backward": 3.0,
    "tanh": 5.0,
    "tanh_backward": 3.0, "addcmul": 3.0, "addcdiv": 3.0, "lerp": 3.0,
}  # fmt: skip
_ERROR_FUNCTION_FLOPS = 6.0  # of its series, beyond a tanh
_FUSED_STEP_FLOPS = 12.0


def describe(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Work:
    """Describe an operation that has just run.

    Args:
        func: the operation.
        args: its positional arguments.
        kwargs: its keyword arguments.
        out: its result.
    """
    name = base_name(func)
    op = kind_of(func, name)
    tensors = flat_tensors((*args, *kwargs.values(), out))
    shape = _shape(op, name, args, out, tensors)
    read, written = moved_bytes(func, name, args, kwargs, out)
    floating = [tensor for tensor in tensors if tensor.is_floating_point()] or tensors
    widest = max(floating, key=lambda tensor: tensor.numel(), default=None)
    element_bytes = 0 if widest is None else widest.itemsize
    return Work(op, shape, _flops(func, name, op, args, kwargs, out), read, written, element_bytes)


def base_name(func: Any) -> str:
    """Name of an operation without namespace, overload and the trailing underscore of in-place ones."""
    name = str(func._schema.name).split("::")[-1] if hasattr(func, "_schema") else str(func).split(".")[-1]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def kind_of(func: Any, name: str) -> Op:  # noqa: PLR0911
    """The kind of an operation, by which GPU models distinguish kernels."""
    if name in _FACTORS:
        return "gemm"
    if not str(func).startswith("aten."):
        return "other"
    for op, words in _BY_WORD:
        if any(word in name for word in words):
            return op
    if name in _PERMUTING:
        return "permute"
    if name in _REDUCING:
        return "reduce"
    tags = getattr(func, "tags", ())
    if torch.Tag.pointwise in tags or name.endswith(("_backward", "_like")) or name in _ELEMENTWISE:
        return "elementwise"
    return "other"


def _shape(op: Op, name: str, args: tuple[Any, ...], out: Any, tensors: list[torch.Tensor]) -> tuple[int, ...]:
    if op == "gemm":
        left, right = (args[index] for index in _FACTORS[name])
        batches = int(left.shape[0]) if left.dim() == 3 else 1
        return batches, int(left.shape[-2]), int(right.shape[-1]), int(left.shape[-1])
    if op in ("attention", "attention_backward"):
        heads = _heads(op, args)
        if heads is not None:
            query, key = heads[0], heads[1]
            return query[0] * query[1], key[0] * key[1], query[2], key[2], query[3]
    if op == "optimizer":
        return (max((_elements(flat_tensors(value)) for value in args), default=0),)
    if op in ("embedding", "embedding_backward") and isinstance(out, torch.Tensor):
        return tuple(int(size) for size in out.shape)
    largest = max(tensors, key=lambda tensor: tensor.numel(), default=None)
    return () if largest is None else tuple(int(size) for size in largest.shape)


def _heads(op: Op, args: tuple[Any, ...]) -> list[tuple[int, ...]] | None:
    """Shapes of query, key and value, each (batch, heads, positions, width)."""
    shapes = [tuple(map(int, value.shape)) for value in args if isinstance(value, torch.Tensor) and value.dim() == 4]
    own = shapes[1:4] if op == "attention_backward" else shapes[:3]
    return own if len(own) == 3 else None


def _flops(func: Any, name: str, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    formula = flop_registry.get(getattr(func, "_overloadpacket", None))
    if formula is not None:
        try:
            return float(formula(*args, **kwargs, out_val=out)) * _used(func, op, args, kwargs)
        except (TypeError, ValueError, AssertionError):
            pass  # arguments in an order that the formula does not accept
    if op in ("attention", "attention_backward"):
        return _attention_flops(op, args) * _used(func, op, args, kwargs)
    tensors = flat_tensors((*args, *kwargs.values(), out))
    largest = max((tensor.numel() for tensor in tensors), default=0)
    if op == "optimizer":
        elements = max((_elements(flat_tensors(value)) for value in args), default=0)
        return elements * (_FUSED_STEP_FLOPS if name.startswith("_fused") else 1.0)
    if op == "elementwise" and name in _POINTWISE_FLOPS:
        by_error_function = name.startswith("gelu") and kwargs.get("approximate", "none") == "none"
        return (_POINTWISE_FLOPS[name] + (_ERROR_FUNCTION_FLOPS if by_error_function else 0.0)) * largest
    forward, backward = _FLOPS_PER_ELEMENT.get(op, (0.0, 0.0))
    counted = {"embedding": out, "embedding_backward": args}.get(op)  # rows looked up, and rows to be summed
    elements = largest if counted is None else _elements(flat_tensors(counted)[:1])
    return float(elements) * (backward if "backward" in name else forward)


def _attention_flops(op: Op, args: tuple[Any, ...]) -> float:
    heads = _heads(op, args)
    if heads is None:
        return 0.0
    query, key, value = map(list, heads)
    if len(query) == len(key) == len(value) == 4:
        key[1] = value[1] = query[1]  # shared key and value heads are used by each query head
    try:
        forward = float(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]
    except AssertionError:
        return 0.0
    return forward * 2.5 if op == "attention_backward" else forward


def _used(func: Any, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Fraction of the scores that a causal mask leaves; PyTorch's formulas count all of them."""
    if op not in ("attention", "attention_backward") or not hasattr(func, "_schema"):
        return 1.0
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    query, key = given.get("query"), given.get("key")
    if not given.get("is_causal") or query is None or key is None or query.dim() != 4:
        return 1.0
    rows, columns = int(query.shape[2]), int(key.shape[2])
    kept = sum(min(row + 1, columns) for row in range(rows))
    return kept / (rows * columns) if rows * columns else 1.0


def _elements(tensors: Iterable[torch.Tensor]) -> int:
    return sum(math.prod(int(size) for size in tensor.shape) for tensor in tensors)


_LOOKED_UP = {"embedding": 0, "index": 0, "_unsafe_index": 0, "index_select": 0, "gather": 0, "nll_loss_forward": 0}
_PARTLY_WRITTEN = ("index_put", "_index_put_impl", "scatter", "index_add", "index_copy", "index_fill")
_NOT_READ = {"nll_loss_backward": 1, "embedding_renorm": 0, "copy": 0, "fill": 0, "zero": 0, "normal": 0, "uniform": 0,
             "bernoulli": 0, "random": 0, "exponential": 0}  # fmt: skip
_MAKERS = ("zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_")


def moved_bytes(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> tuple[float, float]:
    """Bytes read and bytes written, counting each input read once, each output written once, and shared memory once.

    A lookup reads only as much of its table as it returns, and a write at indices reads and writes only as much as it is
    given.

    Args:
        func: the operation.
        name: its base name.
        args: its positional arguments.
        kwargs: its keyword arguments.
        out: its result.
    """
    writes = _written_arguments(func)
    names = [argument.name for argument in func._schema.arguments] if hasattr(func, "_schema") else []
    read, written = _Sum(), _Sum()
    inputs: set[int] = set()
    outputs = sum(_touched(tensor) for tensor in flat_tensors(out))
    brought = sum(_touched(tensor) for value in args[1:] for tensor in flat_tensors(value))
    for position, (argument, value) in enumerate([*zip(names, args, strict=False), *kwargs.items()]):
        for tensor in flat_tensors(value):
            inputs.add(_memory_of(tensor))
            most = _touched(tensor)
            if argument in writes:
                if name.startswith(_PARTLY_WRITTEN):
                    most = min(most, brought)
                written.add(tensor, most)
            if argument == "out" or _NOT_READ.get(name) == position or (position == 0 and name.startswith(_MAKERS)):
                continue
            if _LOOKED_UP.get(name) == position:
                indices = sum(index.numel() for other in args[1:] for index in flat_tensors(other))
                most = min(most, max(outputs, indices * tensor.itemsize))
            read.add(tensor, most)
    for tensor in flat_tensors(out):
        if _memory_of(tensor) not in inputs:
            written.add(tensor, _touched(tensor))
    return read.bytes, written.bytes


class _Sum:
    """A sum of bytes that counts no tensor twice."""

    def __init__(self) -> None:
        self._counted: set[tuple[Any, ...]] = set()
        self.bytes = 0.0

    def add(self, tensor: torch.Tensor, count: float) -> None:
        view = (int(tensor.storage_offset()), tuple(tensor.shape), tuple(tensor.stride())) if _strided(tensor) else ()
        region = (_memory_of(tensor), *view)
        if region not in self._counted:
            self._counted.add(region)
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


def _written_arguments(func: Any) -> set[str]:
    if not hasattr(func, "_schema"):
        return set()
    written = {item.name for item in func._schema.arguments if item.alias_info is not None and item.alias_info.is_write}
    return written - {"grads"} if "_fused_" in func._schema.name else written  # unscaled in place only under a scaler
