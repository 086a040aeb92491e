"""A call that is ready to run on buffers of its own, and where its random data come from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

ONE_OPERATION = "one operation"


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """An operation with its arguments; calling it runs it once.

    Attributes:
        function: the operation; returns all that it writes.
        arguments: tensors that belong to this call alone, and sizes.
        how: how it runs, such as ``one operation`` or ``compiled``.
        parts: operations that it takes when it is run eagerly; more than one is worth compiling to one kernel.
        reference: the same in eager PyTorch, to compare with where ``function`` is something else.
    """

    function: Callable[..., object]
    arguments: tuple[object, ...]
    how: str = ONE_OPERATION
    parts: int = 1
    reference: Callable[..., object] | None = None

    def __call__(self) -> object:
        """Run it once."""
        return self.function(*self.arguments)


def several(function: Callable[..., object], *arguments: object, parts: int) -> PreparedCall:
    """A call that eager PyTorch runs as several operations, to be compiled to one kernel where that is possible."""
    return PreparedCall(function, arguments, f"eager, about {parts} operations", parts)


class Buffers:
    """Random data on a device, the same for the same seed.

    Args:
        device: PyTorch's name of it.
        dtype: of data unless said otherwise.
        seed: of the numbers.
    """

    def __init__(self, device: str, dtype: torch.dtype, seed: int) -> None:
        self.device = torch.device(device)
        self.dtype = dtype
        self.seed = seed
        self._generator = torch.Generator(self.device).manual_seed(seed)

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Normally distributed numbers of mean 0 and variance 1; how many bits change decides the power of a GPU."""
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device).normal_(generator=self._generator)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Room for an output."""
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)

    def indices(self, count: int, below: int, *, cover: bool = False) -> Tensor:
        """Random whole numbers of four bytes.

        Args:
            count: how many.
            below: which they are less than.
            cover: let each number occur equally often, but for one, so that every row of a table is touched.
        """
        generator, device = self._generator, self.device
        if not cover:
            return torch.randint(below, (count,), dtype=torch.int32, device=device, generator=generator)
        order = torch.randperm(count, device=device, generator=generator)
        return (order % below).to(torch.int32)


def usual_part(number: int, usual: int) -> int:
    """The usual size of a dimension where it divides a number of elements, else what it has in common with it."""
    return math.gcd(number, usual)
