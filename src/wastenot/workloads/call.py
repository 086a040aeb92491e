"""A captured operation: what it takes to run it again, as text that can be kept, compared and hashed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """An operation with its arguments' shapes, types and, where they decide what is done, their values.

    Attributes:
        op: name that PyTorch knows it by, such as ``aten.addmm.default``.
        arguments: JSON text; see :mod:`wastenot.operations.replay`.
    """

    op: str
    arguments: str
