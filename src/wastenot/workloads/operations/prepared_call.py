"""A call that is ready to run on its own buffers, and the source of its random data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """An operation with its arguments; calling it runs it once.

    Attributes:
        function: the operation; returns everything it writes.
        arguments: tensors that belong to this call alone, and sizes.
        how: how it runs, such as ``one operation`` or ``compiled``.
        parts: number of operations in eager PyTorch; more than one is worth compiling to a single kernel.
    """

    function: Callable[..., object]
    arguments: tuple[object, ...]
    how: str = "one operation"
    parts: int = 1

    def __call__(self) -> object:
        """Run it once."""
        return self.function(*self.arguments)


def several(function: Callable[..., object], *arguments: object, parts: int) -> PreparedCall:
    """A call that eager PyTorch runs as several operations, to be compiled to one kernel where possible."""
    return PreparedCall(function, arguments, f"eager, about {parts} operations", parts)


class Buffers:
    """Random data on a device, the same for the same seed.

    Args:
        device: PyTorch's name of the device.
        dtype: default data type.
        seed: seed of the random numbers.
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
        """Normally distributed numbers of mean 0 and variance 1; the bits that toggle determine a GPU's power."""
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device).normal_(generator=self._generator)

    def empty(self, *shape: int) -> Tensor:
        """Uninitialised memory for an output."""
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def indices(self, count: int, below: int, *, cover: bool = False) -> Tensor:
        """Random 32-bit integers.

        Args:
            count: how many.
            below: exclusive upper bound.
            cover: make all numbers occur equally often, give or take one, so that every row of a table is touched.
        """
        generator, device = self._generator, self.device
        if not cover:
            return torch.randint(below, (count,), dtype=torch.int32, device=device, generator=generator)
        order = torch.randperm(count, device=device, generator=generator)
        return (order % below).to(torch.int32)
