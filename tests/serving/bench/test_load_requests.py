"""Requests of lengths, of a trace and of a file."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.bench.http_streams import open_files
from wastenot.serving.bench.loads import Lengths, Prompts, asks_of_lengths, load_of_file, load_of_trace, read_asks
from wastenot.serving.model.requests import Requests


def test_lengths_vary_as_asked_for() -> None:
    rng = np.random.default_rng(3)
    drawn = np.array([Lengths(400.0, 0.5).draw(rng) for _ in range(20_000)])
    assert drawn.mean() == pytest.approx(400.0, rel=0.02)
    assert drawn.std() == pytest.approx(200.0, rel=0.05)
    assert {Lengths(7.0).draw(rng) for _ in range(10)} == {7}


def test_prompts_differ_from_their_beginnings_on() -> None:
    prompts = Prompts(1.3, 5.0)
    texts = [prompts.of_length(200) for _ in range(200)]
    assert len({" ".join(text.split()[:8]) for text in texts}) == 200
    assert all(round(len(text.split()) * 1.3 + 5.0) == pytest.approx(200, abs=1) for text in texts)
    assert Prompts(seed=4).of_length(50) == Prompts(seed=4).of_length(50)


def test_arrivals_are_poisson() -> None:
    asks = list(islice(asks_of_lengths(Prompts(), Lengths(5), Lengths(5), rate_per_s=4.0), 5000))
    gaps = np.diff([0.0, *(ask.arrival_s or 0.0 for ask in asks)])
    assert gaps.mean() == pytest.approx(0.25, rel=0.05)
    assert gaps.std() == pytest.approx(0.25, rel=0.05)


def test_a_trace_in_turn_or_as_it_came() -> None:
    load = load_of_trace("t", Requests(np.array([0.0, 1.0, 4.0]), np.array([10, 20, 30]), np.array([3, 2, 1])))
    in_turn = list(islice(load.closed(Prompts()), 5))
    assert [ask.output_tokens for ask in in_turn] == [3, 2, 1, 3, 2]
    assert [len(str(ask.content).split()) for ask in in_turn] == [10, 20, 30, 10, 20]
    assert [ask.arrival_s for ask in load.opened(Prompts(), None)] == [0.0, 1.0, 4.0]
    assert [ask.arrival_s for ask in load.opened(Prompts(), 1.0)] == [0.0, 0.5, 2.0]


def test_requests_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"prompt": "a", "max_tokens": 5}\n\n{"prompt": "b", "arrival_s": 2}\n')
    first, second = read_asks(path)
    assert (first.content, first.output_tokens, first.exact) == ("a", 5, False)
    assert (second.output_tokens, second.arrival_s) == (None, 2.0)
    with pytest.raises(BadInputError, match="its requests have no 'arrival_s'; give a rate"):
        load_of_file(path).opened(Prompts(), None)
    assert len(list(load_of_file(path).opened(Prompts(), 3.0))) == 2


def test_messages_need_chat(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    assert load_of_file(path).api == "chat"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"prompt": "a', "not JSON, or cut off"),
        ("[]", "must be an object with either a 'prompt' or 'messages'"),
        ('{"prompt": "a", "messages": []}', "either a 'prompt' or 'messages'"),
        ('{"prompt": ""}', "a text that is not empty"),
        ('{"prompt": 3}', "a text that is not empty"),
        ('{"messages": "hi"}', "must be a list of objects"),
        ('{"messages": []}', "must be a list of objects"),
        ('{"prompt": "a", "max_tokens": 0}', "'max_tokens' 0: must be a whole number of at least 1"),
        ('{"prompt": "a", "max_tokens": true}', "whole number"),
        ('{"prompt": "a", "arrival_s": -1}', "'arrival_s' -1: must be seconds"),
        ('{"prompt": "a", "arrival_s": NaN}', "must be seconds"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f'{{"prompt": "fine"}}\n{line}\n')
    with pytest.raises(BadInputError, match=says) as error:
        read_asks(path)
    assert str(error.value).startswith(f"{path}:2: ")


def test_files_that_hold_nothing_or_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for name, says in (("empty", "holds no requests"), ("bytes", "byte 0: is not UTF-8"), ("missing", "cannot be read")):
        with pytest.raises(BadInputError, match=says):
            read_asks(tmp_path / name)


def test_arrivals_out_of_order(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"prompt": "a", "arrival_s": 2}\n{"prompt": "b", "arrival_s": 1}\n')
    with pytest.raises(BadInputError, match="in the order of their 'arrival_s'"):
        load_of_file(path)


def test_connections_beyond_the_limit_of_open_files() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
        with open_files(2000):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 2000
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 1024
        if before[1] != resource.RLIM_INFINITY:
            with pytest.raises(BadInputError, match="ulimit -Hn"), open_files(before[1]):
                pass
        with open_files(None):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 1024
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
