"""Kernels and workloads analytically: what they compute and what they move, before anything is measured."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from wastenot.core.errors import BadInputError

if TYPE_CHECKING:
    from wastenot.workloads.identity import ModelRun

Op = Literal[
    "gemm", "attention", "attention_backward", "softmax", "layernorm", "rmsnorm", "elementwise", "permute", "reduce",
    "embedding", "embedding_backward", "optimizer", "collective", "other",
]  # fmt: skip

DTYPE_BYTES: dict[str, int] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class Call:
    """A captured operation, with all it takes to run it again as text that can be kept, compared and hashed.

    Attributes:
        op: name that PyTorch knows it by, such as ``aten.addmm.default``.
        arguments: their shapes, types and, where they decide what is done, their values, as JSON; see
            :mod:`wastenot.workloads.operations.replay`.
    """

    op: str
    arguments: str

    @property
    def buffer_bytes(self) -> int:
        """Size of its arguments, of which it may touch a small part; 0 where they do not say."""
        return sum(json.loads(self.arguments).get("storages", ()))


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One GPU operation with fixed shapes.

    Attributes:
        name: unique within a workload.
        label: what it is called in the kernel-level DVFS paper's Table 1, such as ``GEMM``.
        op: the operation.
        shape: sizes that define it: of a GEMM (batches, m, n, k), of others the sizes of what they run over.
        flops: floating-point operations of one call.
        bytes_read: least bytes read from device memory, each input once.
        bytes_written: least bytes written, each output once.
        pass_name: forward, loss, backward, ...
        block: the loop it belongs to, ``layer`` for a transformer layer.
        count: how often it runs in an iteration.
        place: its place in the order of execution, from 1; 0 before it has one.
        call: the captured operation that it is; ``None`` of an analytical kernel.
        element_bytes: of the data type it computes in; 0 where it does not say.
    """

    name: str
    label: str
    op: Op
    shape: tuple[int, ...]
    flops: float
    bytes_read: float
    bytes_written: float
    pass_name: str
    block: str | None
    count: int
    place: int = 0
    call: Call | None = None
    element_bytes: int = 0

    @property
    def bytes_moved(self) -> float:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved: the algorithm's op-to-byte ratio."""
        return self.flops / self.bytes_moved


@dataclass(frozen=True, slots=True)
class Workload:
    """Kernels in order of execution; each is given its place.

    Attributes:
        name: says what the kernels are of, such as ``gpt3-xl`` or ``gpt3-xl-batch10-tp2``.
        kernels: in order of execution.
        description: a line for a person.
        run: the model that it is of, and how that is run; ``None`` of a captured workload.
        captured_on: PyTorch's name of the kind of device that it was captured on, such as ``cuda`` or ``cpu``; ``None`` of
            workloads that were not captured, or by a version that did not say.
    """

    name: str
    kernels: tuple[KernelSpec, ...] = field(repr=False)
    description: str
    run: ModelRun | None = None
    captured_on: str | None = None

    def __post_init__(self) -> None:
        names = [kernel.name for kernel in self.kernels]
        if len(set(names)) != len(names):
            raise BadInputError(f"workload '{self.name}': two kernels have the same name")
        placed = (replace(kernel, place=place) for place, kernel in enumerate(self.kernels, 1))
        object.__setattr__(self, "kernels", tuple(placed))

    @property
    def calls(self) -> int:
        """Kernels run in one iteration, each as often as it runs."""
        return sum(kernel.count for kernel in self.kernels)

    @property
    def flops(self) -> float:
        """Floating-point operations of one iteration."""
        return sum(kernel.count * kernel.flops for kernel in self.kernels)

    @property
    def bytes_moved(self) -> float:
        """Bytes moved by one iteration, each kernel's inputs and outputs once."""
        return sum(kernel.count * kernel.bytes_moved for kernel in self.kernels)
