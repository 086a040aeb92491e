"""What a captured operation's tensors held, as concisely as replaying it needs, and filling tensors accordingly.

    {"value": 3.0}            one element: its value
    {"exact": "eJw..."}       integers and booleans: their bytes in order, zlib and base64
    {"range": [0, 50256]}     integers too many to keep, or unknown: uniform within, bounds included
    {"share": 0.9}            booleans too many to keep, or unknown: fraction that is true
    {"like": "normal"}        floating point: normal; positive, negative; unit (in 0..1); signs (+1 or -1)

Floating-point data is random and never zero, whatever was recorded, since zeros draw less power; only its sign is kept, so
that roots, logarithms, variances and probabilities stay valid. ``"no_data": true`` marks tensors that held no data (fake
tensors), whose values are chosen so that the operation is valid: indices in range, positive numbers.
"""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import torch

MOST_KEPT = 4_000_000
"""Most elements of an integer or boolean tensor whose values are kept exactly."""
MOST_BYTES = 2_000_000
"""Most bytes that these may take when compressed."""

_FILLED_DIRECTLY = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_PACKED = tuple(getattr(torch, name) for name in ("float4_e2m1fn_x2",) if hasattr(torch, name))
_POWERS_OF_TWO = tuple(getattr(torch, name) for name in ("float8_e8m0fnu",) if hasattr(torch, name))


def described(tensor: torch.Tensor, operation: str, raw: tuple[Any, ...]) -> dict[str, Any]:
    """What to fill a tensor with when its operation is replayed.

    Args:
        tensor: an argument of the operation; it is read, which waits for the GPU.
        operation: name without namespace and overload.
        raw: the operation's positional arguments, which bound indices where tensors hold no data.
    """
    floating = tensor.is_floating_point() or tensor.is_complex()
    if not _readable(tensor):
        return _without_data(tensor, operation, raw, floating) | {"no_data": True}
    if tensor.numel() == 0 or tensor.dtype in _PACKED:
        return {"like": "normal"}
    if tensor.numel() == 1 and not tensor.is_complex():
        value = tensor.to(torch.float64).item() if floating else tensor.item()
        return {"value": value if not floating or math.isfinite(value) else str(value)}
    return {"like": _sign_of(tensor)} if floating else _integers(tensor)


def collapsed(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without the repeats of broadcast dimensions (those with stride 0)."""
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def fill(tensor: torch.Tensor, values: dict[str, Any], generator: torch.Generator) -> None:
    """Fill a tensor in place.

    Args:
        tensor: the tensor to fill.
        values: as returned by :func:`described`.
        generator: random numbers on the tensor's device.
    """
    if tensor.numel() == 0:
        return
    target = collapsed(tensor)
    if _overlaps(target):
        _fill_overlapping(target, values, generator)
    elif "value" in values:
        value = float(values["value"]) if isinstance(values["value"], str) else values["value"]
        target.copy_(torch.tensor(value, dtype=_wide(target.dtype)).to(target.dtype))
    elif "exact" in values:
        target.copy_(_exact(values["exact"], target))
    elif "range" in values:
        low, high = values["range"]
        target.copy_(torch.randint(low, high + 1, tuple(target.shape), generator=generator, device=target.device))
    elif "share" in values:
        random = torch.rand(tuple(target.shape), generator=generator, device=target.device)
        target.copy_(random < values["share"])
    else:
        _fill_random(target, values["like"], generator)


def _readable(tensor: torch.Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
        return False
    return not (tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing())


def _without_data(tensor: torch.Tensor, operation: str, raw: tuple[Any, ...], floating: bool) -> dict[str, Any]:
    if tensor.dtype == torch.bool:
        return {"value": False} if tensor.numel() == 1 else {"share": 0.5}
    if floating:
        if tensor.numel() == 1 and not tensor.is_complex():
            return {"value": 1.0}
        return {"like": "unit" if any(word in operation for word in _POSITIVE) else "normal"}
    if tensor.numel() == 1:
        return {"value": 0}
    sizes = _indexed(operation.strip("_"), raw) or _all_sizes(raw)
    return {"range": [0, max(min(sizes, default=1) - 1, 0)]}


def _sign_of(tensor: torch.Tensor) -> str:
    if tensor.is_complex():
        return "normal"
    readable = collapsed(tensor.detach())
    if readable.dtype not in _FILLED_DIRECTLY:
        readable = readable.to(torch.float32)
    low, high = (float(end) for end in readable.aminmax())
    if low >= 0.0:
        return "unit" if high <= 1.0 else "positive"
    return "negative" if high <= 0.0 else "normal"


def _integers(tensor: torch.Tensor) -> dict[str, Any]:
    one_each = collapsed(tensor.detach())
    if one_each.numel() <= MOST_KEPT:
        raw = one_each.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
        packed = zlib.compress(raw, 6)
        if len(packed) <= MOST_BYTES:
            return {"exact": base64.b64encode(packed).decode("ascii")}
    if one_each.dtype == torch.bool:
        return {"share": float(one_each.to(torch.float32).mean())}
    low, high = one_each.to(torch.int64).aminmax()
    return {"range": [int(low), int(high)]}


def _exact(text: str, like: torch.Tensor) -> torch.Tensor:
    raw = zlib.decompress(base64.b64decode(text, validate=True))
    if len(raw) != like.numel() * like.itemsize:
        raise ValueError(f"{len(raw)} bytes of values for a tensor of {like.numel() * like.itemsize}")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(like.dtype).reshape(like.shape)


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether two elements of a tensor without broadcast dimensions may share memory."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride < reach:
            return True
        reach = stride * (size - 1) + reach
    return False


def _fill_overlapping(tensor: torch.Tensor, values: dict[str, Any], generator: torch.Generator) -> None:
    """Fill all memory from the first to the last element, then write the known values."""
    count = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    flat = tensor.as_strided((count,), (1,))
    if "exact" not in values:
        fill(flat, values, generator)
        return
    flat.zero_()
    offsets = torch.arange(count, device=tensor.device).as_strided(tensor.shape, tensor.stride()).reshape(-1)
    flat[offsets] = _exact(values["exact"], tensor).to(tensor.device).reshape(-1)


def _fill_random(tensor: torch.Tensor, like: str, generator: torch.Generator) -> None:
    if tensor.dtype in _PACKED:
        whole = tensor.view(torch.uint8)
        whole.copy_(torch.randint(0, 256, tuple(whole.shape), generator=generator, device=whole.device))
        return
    if tensor.is_complex():
        _fill_random(torch.view_as_real(tensor), like, generator)
        return
    if tensor.dtype in _POWERS_OF_TWO:
        powers = torch.randint(-3, 4, tuple(tensor.shape), generator=generator, device=tensor.device)
        tensor.copy_(torch.exp2(powers.to(torch.float32)).to(tensor.dtype))
        return
    # Of normal numbers that a CPU draws in half precision some are 0, in some versions of PyTorch.
    direct = tensor.dtype in _FILLED_DIRECTLY and (tensor.itemsize > 2 or tensor.is_cuda)
    target = tensor if direct else torch.empty(tuple(tensor.shape), dtype=torch.float32, device=tensor.device)
    if like == "normal":
        target.normal_(generator=generator)
    elif like == "signs":
        target.uniform_(-1.0, 1.0, generator=generator).sign_().add_(target.eq(0))
    elif like == "unit":
        target.uniform_(1 / 64, 1.0, generator=generator)
    else:
        target.uniform_(0.25, 1.75, generator=generator)
        if like == "negative":
            target.neg_()
    if not direct:
        tensor.copy_(target.to(tensor.dtype))


def _wide(dtype: torch.dtype) -> torch.dtype:
    """A type of the same kind that holds any value that was kept."""
    if dtype == torch.bool:
        return torch.bool
    if dtype.is_floating_point:
        return torch.float64
    return torch.uint64 if dtype == torch.uint64 else torch.int64


# Operations that take roots or logarithms, or expect variances or probabilities.
_POSITIVE = (
    "sqrt", "log", "pow", "bernoulli", "multinomial", "addcdiv", "adam", "adagrad", "batch_norm", "norm_backward",
    "binary_cross_entropy", "acos", "asin", "atanh", "acosh", "exponential",
)  # fmt: skip
_INDEXED_DIMENSION = ("index_select", "gather", "scatter", "index_add", "index_copy", "index_fill", "take_along_dim")


def _indexed(name: str, raw: tuple[Any, ...]) -> list[int]:  # noqa: PLR0911
    """Sizes of the dimensions that an operation is known to index."""
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
    """Every dimension of every floating-point tensor: an index below the smallest of them is valid in each."""
    tensors = [value for value in raw if isinstance(value, torch.Tensor) and value.is_floating_point()]
    return [int(size) for tensor in tensors for size in tensor.shape]
