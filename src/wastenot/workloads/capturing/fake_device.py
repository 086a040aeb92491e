"""Tensors on a device, but without data: PyTorch picks that device's operations, and nothing runs there or takes memory.

PyTorch's fake tensors leave out two things that training steps rely on, which are filled in here while the context is open:
optimizers and gradient clipping do not recognise them as tensors that can be treated together, and modules cannot be moved
or converted (``model.to(torch.bfloat16)``), since a weak reference to their parameters forbids it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_GROUPING = ("torch.optim.optimizer", "torch.utils._foreach_utils")  # modules that know which tensors go together


class _UnseenReferences:
    """The module ``weakref``, except that nothing has a weak reference: those of fake tensors survive a swap."""

    @staticmethod
    def getweakrefs(_: object) -> list[Any]:
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(weakref, name)


@contextmanager
def without_data() -> Iterator[None]:
    """Make every tensor that is created inside a fake one, on whichever device it is."""
    grouped: list[list[type]] = [getattr(import_module(name), "_foreach_supported_types", []) for name in _GROUPING]
    before = getattr(torch.utils, "weakref", None)
    for types in grouped:
        types.append(FakeTensor)
    if before is not None:
        setattr(torch.utils, "weakref", _UnseenReferences())  # noqa: B010
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield
    finally:
        if before is not None:
            setattr(torch.utils, "weakref", before)  # noqa: B010
        for types in grouped:
            types.remove(FakeTensor)
