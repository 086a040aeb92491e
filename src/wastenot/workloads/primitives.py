"""Kernels by themselves, as FinGraV profiles them: square products, the same matrices times a vector, collectives.

gemm:8192     bf16, 8192 × 8192 × 8192             gemv:4096x40        40 times 4096 × 4096 times a vector
all-reduce:512MB                                    all-gather:64KB     64 KB on each GPU in the end
"""

from __future__ import annotations

import re

from wastenot.core.errors import BadInputError
from wastenot.core.suggest import suggestion
from wastenot.workloads.kernel import DTYPE_BYTES, KernelSpec
from wastenot.workloads.parts import Parts

COLLECTIVES = ("all-reduce", "all-gather")
PRIMITIVES = ("gemm", "gemv", *COLLECTIVES)

_DTYPE = "bf16"
_LARGEST = 65536
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_SIZED = re.compile(r"(\d+)(?:x(\d+))?")
_BYTES = re.compile(r"(\d+)(B|KB|MB|GB)(?:x(\d+))?", re.IGNORECASE)


def example_of(kind: str) -> str:
    """A name of this kind, with a size."""
    return f"{kind}:512MB" if kind in COLLECTIVES else f"{kind}:4096"


def is_primitive(text: str) -> bool:
    """Whether a name is meant for one of these, be it right or not."""
    return text.partition(":")[0] in PRIMITIVES


def primitive(text: str) -> tuple[KernelSpec, int]:
    """The kernel of a name, and how often it is to run: ``gemv:4096x40`` is 40 times the product of 4096² and a vector.

    Raises:
        BadInputError: there is no such kernel, or its size is not one.
    """
    kind, _, size = text.partition(":")
    if kind not in PRIMITIVES:
        raise BadInputError(f"kernel '{text}': there is no kind '{kind}'; {suggestion(kind, PRIMITIVES)}")
    if kind in COLLECTIVES:
        match = _BYTES.fullmatch(size)
        if not match or int(match[1]) == 0:
            raise BadInputError(f"kernel '{text}': write its size in bytes, such as {kind}:512MB")
        number = int(match[1]) * _UNITS[match[2].upper()]
        return _collective(kind, f"{match[1]}{match[2].upper()}", number), int(match[3] or 1)
    match = _SIZED.fullmatch(size)
    if not match or not 1 <= int(match[1]) <= _LARGEST or (match[2] is not None and int(match[2]) == 0):
        raise BadInputError(f"kernel '{text}': write the edge of its matrices, 1 to {_LARGEST}, such as {kind}:4096")
    edge = int(match[1])
    work = Parts.of(_DTYPE).gemm(edge, edge if kind == "gemm" else 1, edge)
    return work.placed(f"{kind}-{edge}", kind.upper(), "", None, 1), int(match[2] or 1)


def _collective(kind: str, size: str, number: int) -> KernelSpec:
    elements = number // DTYPE_BYTES[_DTYPE]
    flops = float(elements) if kind == "all-reduce" else 0.0
    return KernelSpec(
        f"{kind}-{size}", kind, "collective", (number,), flops, float(number), float(number), "", None, 1,
        element_bytes=DTYPE_BYTES[_DTYPE],
    )  # fmt: skip
