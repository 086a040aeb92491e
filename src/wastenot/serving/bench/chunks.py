"""What one chunk of a stream says: how much text, how many tokens so far, whether the answer ends with it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

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
        finish: why the answer ends with it; ``None`` where it goes on.
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
