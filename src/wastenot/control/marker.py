"""A marker: what a running job says of how far its GPU has come."""

from __future__ import annotations

from dataclasses import dataclass

ITERATION = "iteration"
EPOCH = "epoch"


@dataclass(frozen=True, slots=True)
class Marker:
    """A place in the program that a GPU has reached.

    Attributes:
        name: ``iteration`` where one begins; a pass, such as ``backward``; a layer's turn in a pass, ``backward:11``.
        iteration: the iteration it belongs to, counted from 0.
        reached_s: when the GPU reached it, on the clock of the controller.
        gpu: index of the GPU among those controlled.
    """

    name: str
    iteration: int
    reached_s: float
    gpu: int = 0
