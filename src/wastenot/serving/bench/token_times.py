"""When tokens came, from the chunks of a stream, which may carry several: a gap is divided among the tokens that end it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray

_AT_ONCE_S = 1e-4
"""Chunks closer than this came together: no engine makes a token in so little time, but one reply may come in two reads."""


def tokens_of_chunks(characters: Sequence[int], counted: Sequence[int], total: int | None) -> IndexArray:
    """How many tokens each chunk of an answer carried.

    Args:
        characters: of each chunk's text.
        counted: tokens of the answer up to and with each chunk, by the server; -1 where it did not say.
        total: of the whole answer; ``None`` where nobody counted, and each chunk is taken for one token.

    Returns:
        A count for each chunk. Where only the total is known, chunks have one token each, and those beyond are spread by the
        length of their texts.
    """
    chunks = len(characters)
    counts = np.asarray(counted, dtype=np.intp)
    if chunks and np.all(counts >= 0) and np.all(np.diff(counts) >= 0):
        return np.diff(counts, prepend=0)
    if total is None or chunks in {total, 0}:
        return np.ones(chunks, dtype=np.intp)
    if total < chunks:  # the last chunks of pieces of tokens complete them
        edges = np.round(np.linspace(0.0, total, chunks + 1)).astype(np.intp)
        return np.diff(edges)
    weight = np.asarray(characters, dtype=float) + 1e-9
    edges = np.round(np.concatenate([[0.0], np.cumsum(weight)]) / weight.sum() * (total - chunks)).astype(np.intp)
    beyond: IndexArray = np.diff(edges)
    return beyond + 1


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """When the tokens of an answer came.

    Attributes:
        first_s: when the first came; ``None`` if none did.
        first_tokens: that came at once with it, which have no gap before them.
        later_s: of each token after these.
        gaps_s: before each of ``later_s``.
    """

    first_s: float | None
    first_tokens: int
    later_s: FloatArray
    gaps_s: FloatArray

    def within(self, begin_s: float, end_s: float) -> tuple[int, FloatArray]:
        """How many tokens came in a window, and the gaps that ended in it."""
        at_first = self.first_tokens if self.first_s is not None and begin_s < self.first_s <= end_s else 0
        gaps = self.gaps_s[(self.later_s > begin_s) & (self.later_s <= end_s)]
        return at_first + len(gaps), gaps


def token_times(arrival_s: Sequence[float], tokens: IndexArray) -> TokenTimes:
    """Times of tokens, and the gaps before them. A gap that ends in several tokens is divided evenly, as ML.ENERGY does.

    Args:
        arrival_s: of chunks, ascending.
        tokens: of each chunk.
    """
    at = np.asarray(arrival_s, dtype=float)
    at, tokens = at[tokens > 0], tokens[tokens > 0]
    if len(at) == 0:
        return TokenTimes(None, 0, np.zeros(0), np.zeros(0))
    begins = np.concatenate([[True], np.diff(at) > _AT_ONCE_S])
    count = np.bincount(np.cumsum(begins) - 1, weights=tokens).astype(np.intp)
    at = at[begins]
    gaps = np.repeat(np.diff(at) / count[1:], count[1:])
    return TokenTimes(float(at[0]), int(count[0]), at[0] + np.cumsum(gaps), gaps)
