"""A chunk that is skimmed says what it says when read in full."""

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from wastenot.serving.bench.chunks import Chunk, StreamError, read_chunk, skim_chunk

TEXTS = st.text(max_size=30) | st.sampled_from(['"text": "x"', '"finish_reason":null', '{"content":"', "\\", '\\"', "é\n\t"])


def completion(text: str, usage: Any = None, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return {"id": "1", "choices": [choice]} | ({} if usage is None else {"usage": usage})


def chat(text: str, usage: Any = None, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": finish}
    return {"id": "1", "choices": [choice]} | ({} if usage is None else {"usage": usage})


@settings(max_examples=300)
@given(
    st.sampled_from([completion, chat]),
    TEXTS,
    st.none() | st.integers(0, 5000).map(lambda n: {"prompt_tokens": 9, "completion_tokens": n, "total_tokens": n + 9}),
    st.none() | st.sampled_from(["length", "stop"]),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.booleans(),
)
def test_skimmed_as_read(make: Any, text: str, usage: Any, finish: str | None, separators: Any, ascii_only: bool) -> None:
    data = json.dumps(make(text, usage, finish), separators=separators, ensure_ascii=ascii_only).encode()
    full, quick = read_chunk(data), skim_chunk(data)
    assert full == Chunk(len(text), -1 if usage is None else usage["completion_tokens"], usage and 9, finish)
    if quick is not None:
        characters, counted = quick
        assert finish is None
        assert counted == full.counted
        assert bool(characters) == bool(full.characters)
        if text.isascii() and text.isalnum():
            assert characters == full.characters
    elif finish is None:
        assert text == ""  # all others in the middle of an answer are skimmed


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "tool_calls"])
def test_text_of_other_kinds_counts(name: str) -> None:
    value = [{"function": {"arguments": "{"}}] if name == "tool_calls" else "so"
    data = json.dumps({"choices": [{"delta": {"content": None, name: value}, "finish_reason": None}]}).encode()
    assert skim_chunk(data) is None
    assert read_chunk(data).characters > 0


def test_an_error_in_the_middle_is_one_and_an_empty_one_is_none() -> None:
    with pytest.raises(StreamError):
        read_chunk(b'{"error": {"message": "out of memory"}}')
    assert read_chunk(b'{"error": null, "choices": [{"text": "a", "finish_reason": null}]}').characters == 1
    assert skim_chunk(b'{"error": "x", "choices": [{"text": "a", "finish_reason": null}]}') is None
