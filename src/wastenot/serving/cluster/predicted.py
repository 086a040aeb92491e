"""A predictor of answers' lengths, as wrong as it is said to be.

It tells the kind of an answer, short, middle or long, by a stated confusion; the length that router and policies are told
is that of an earlier request whose answer was of the told kind. What is told of a request depends on the seed, its answer
and its place in the load alone, so a load may be cut into parts anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.cluster.classes import OUTPUT_BELOW
from wastenot.serving.model.requests import Requests

_BLOCK = 4096
"""Requests whose predictions are drawn together."""
_TYPICAL = (50.0, 200.0, 500.0)
"""Tokens of answers of each kind where no earlier one is known."""


def confusion_of(right: float) -> FloatArray:
    """Of a predictor that is right so often and else tells a neighbouring kind; true kinds by told ones; shape (3, 3)."""
    wrong = 1.0 - right
    return np.array([[right, wrong, 0.0], [wrong / 2, right, wrong / 2], [0.0, wrong, right]])


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """What is told of the answers of a load.

    Attributes:
        confusion: share of each true kind, by row, that is told to be of each kind; rows sum to 1; shape (3, 3).
        lengths: earlier requests.
        seed: of what is told.
    """

    confusion: FloatArray
    lengths: Requests
    seed: int | Sequence[int] = 0

    def told(self, requests: Requests, first: int = 0) -> FloatArray:
        """Tokens of each answer as they are told; shape (requests,).

        Args:
            requests: a load, or a part of it.
            first: how many requests of the load come before this part.
        """
        chance, rank = self._drawn(first, len(requests))
        kind = np.searchsorted(OUTPUT_BELOW, requests.output_tokens, side="right")
        below = (np.cumsum(self.confusion, axis=1) / self.confusion.sum(axis=1, keepdims=True))[:, :2]
        taken = (chance >= below[kind, 0]).astype(np.intp) + (chance >= below[kind, 1])
        found = np.empty(len(requests))
        known = np.searchsorted(OUTPUT_BELOW, self.lengths.output_tokens, side="right")
        for each, typical in enumerate(_TYPICAL):
            lengths = self.lengths.output_tokens[known == each].astype(np.float64)
            own = taken == each
            found[own] = lengths[(rank[own] * len(lengths)).astype(np.intp)] if len(lengths) else typical
        return found

    def _drawn(self, first: int, count: int) -> tuple[FloatArray, FloatArray]:
        """Two numbers from 0 to 1 of each request, block after block from seeds of their own."""
        blocks = range(first // _BLOCK, -(-(first + count) // _BLOCK))
        seed = (self.seed,) if isinstance(self.seed, int) else tuple(self.seed)
        drawn = [np.random.default_rng([*seed, block]).random((2, _BLOCK)) for block in blocks]
        if not drawn:
            return np.empty(0), np.empty(0)
        begin = first - blocks[0] * _BLOCK
        both = np.concatenate(drawn, axis=1)[:, begin : begin + count]
        return both[0], both[1]
