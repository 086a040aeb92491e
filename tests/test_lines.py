"""Lines that others send: whatever they are, they end as a message or as one known error, in bounded memory."""

import json
import time

import pytest
from hypothesis import given, settings, strategies as st

from wastenot.core.lines import LineError, LineReader, object_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[" * 1000, "nested more than 16 deep"),
        (b'{"a":' * 100_000, "nested more than 16 deep"),
        (b"[]", "not a JSON object"),
        (b'"{"', "not a JSON object"),
        (b"", "Expecting value"),
        (b"{\xff}", "codec can't decode"),
        (b'{"a": 1, "a": 2}', "a field is given twice"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": -Infinity}', "-Infinity is not a number"),
        (b'{"a": 1e999}', "1e999 is not finite"),
        (b'{"a": 9223372036854775808}', "is too large"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "is too large"),
    ],
)
def test_what_is_no_message_says_why(line, why):
    with pytest.raises(LineError, match=why):
        object_of(line)


def test_brackets_in_texts_are_no_depth():
    message = {"text": "[" * 100 + '\\"{' * 100, "rows": [[1]] * 100}
    assert object_of(json.dumps(message).encode()) == message
    assert object_of(b'{"a": {"b": {}}}', deepest=3) == {"a": {"b": {}}}
    with pytest.raises(LineError, match="nested more than 2 deep"):
        object_of(b'{"a": {"b": {}}}', deepest=2)


@given(st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=5), st.lists(st.integers(1, 40), min_size=1))
@settings(max_examples=60, deadline=None)
def test_messages_come_back_whatever_pieces_they_come_in(messages, sizes):
    data = b"".join(json.dumps(each).encode() + b"\n" for each in messages)
    reader, found, at = LineReader(1 << 16, deepest=100), [], 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        found += reader.taken(data[at : at + size])
        at += size
    assert found == messages


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_messages_or_a_line_error(data):
    reader = LineReader(200)
    try:
        for message in reader.taken(data + b"\n"):
            assert isinstance(message, dict)
    except LineError as error:
        assert str(error)


def test_a_line_that_does_not_end_is_not_kept():
    reader = LineReader(4096)
    assert list(reader.taken(b"[" * 4096)) == []
    with pytest.raises(LineError, match="longer than 4096 bytes"):
        list(reader.taken(b"["))
    with pytest.raises(LineError, match="longer than 4 bytes"):
        list(LineReader(4).taken(b'{"a": 1}\n'))


def test_how_long_a_line_takes_grows_as_its_length():
    """Strings that do not end, of escapes and quotes: looked at once, not again from each of them."""
    began_s = time.process_time()
    for mark in (b'\\"', b'"', b'"\\', b"\\", b'"a'):
        with pytest.raises(LineError):
            object_of(b"[" * 17 + mark * 300_000)
    assert time.process_time() - began_s < 10.0, "more than a second for a quarter of this, where it grew as the square"
