"""What the chunks of a stream say (text, tokens so far, whether the answer ends), and when the tokens they carry came."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray

# A quotation mark within a text is escaped, so that these are found in no text.
_TEXT = re.compile(rb'"(?:text|content)": ?"((?:[^"\\]|\\.)+)"')
_GOES_ON = re.compile(rb'"finish_reason": ?null')
_COUNTED = re.compile(rb'"completion_tokens": ?(\d+)')
_SPECIAL = re.compile(rb'"(?:error|tool_calls|tokens|top_logprobs)" ?:')  # chunks with these are read in full


class StreamError(Exception):
    """The server reports an error in the middle of a stream."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk.

    Attributes:
        characters: of its text, roughly where it has escapes; 0 for a chunk that carries none.
        counted: tokens of the answer so far, as the server counts; -1 where it does not say.
        prompt_tokens: as the server counts them; ``None`` where it does not say.
        finish: why the answer ends with it; ``None`` where it continues.
    """

    characters: int
    counted: int = -1
    prompt_tokens: int | None = None
    finish: str | None = None


def read_chunk(data: bytes) -> Chunk:
    """Read a chunk in full.

    Raises:
        StreamError: it says that something failed.
        ValueError: it is not JSON.
    """
    fields = json.loads(data)
    if fields.get("error"):
        raise StreamError(data.decode(errors="replace"))
    usage: dict[str, Any] = fields.get("usage") or {}
    characters, finish = 0, None
    for choice in fields.get("choices") or ():
        characters += len(_text_of(choice))
        finish = choice.get("finish_reason") or finish
    counted = int(usage.get("completion_tokens") or 0) if usage else -1
    return Chunk(characters, counted, usage.get("prompt_tokens"), finish)


def skim_chunk(data: bytes) -> tuple[int, int] | None:
    """Read of a chunk in the middle of an answer what changes from one to the next, in a third of the time.

    Returns:
        ``characters`` and ``counted`` of :class:`Chunk`; ``None`` for a chunk that has to be read in full.
    """
    text = _TEXT.search(data)
    if text is None or _GOES_ON.search(data) is None or _SPECIAL.search(data) is not None:
        return None
    counted = _COUNTED.search(data)
    return text.end(1) - text.start(1), -1 if counted is None else int(counted[1])


def _text_of(choice: dict[str, Any]) -> str:
    text = choice.get("text")
    if text is None:
        delta = choice.get("delta") or {}
        text = (
            delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or delta.get("tool_calls") or ""
        )  # fmt: skip
    return text if isinstance(text, str) else json.dumps(text)


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
