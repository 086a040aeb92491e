"""Tokens from chunks: a gap is divided among the tokens that end it."""

import numpy as np
from hypothesis import given, strategies as st

from wastenot.serving.bench.chunks import token_times, tokens_of_chunks


def test_a_gap_that_ends_in_several_tokens_is_divided_evenly() -> None:
    found = token_times([1.0, 1.3, 1.4], np.array([1, 3, 1]))
    assert found.first_s == 1.0
    np.testing.assert_allclose(found.gaps_s, [0.1, 0.1, 0.1, 0.1])
    np.testing.assert_allclose(found.later_s, [1.1, 1.2, 1.3, 1.4])


def test_chunks_that_come_at_once_share_the_gap_before_them() -> None:
    found = token_times([1.0, 1.2, 1.2, 1.2 + 2e-5, 1.3], np.ones(5, dtype=int))
    np.testing.assert_allclose(found.gaps_s, [0.2 / 3] * 3 + [0.1], rtol=1e-3)


def test_tokens_that_come_with_the_first_have_no_gap() -> None:
    found = token_times([1.0, 1.1], np.array([4, 1]))
    assert found.first_tokens == 4
    assert len(found.gaps_s) == 1
    assert found.within(0.0, 2.0)[0] == 5


def test_a_chunk_without_tokens_ends_no_gap() -> None:
    np.testing.assert_allclose(token_times([1.0, 1.1, 1.3], np.array([1, 0, 1])).gaps_s, [0.3])


def test_counts_of_the_server_decide() -> None:
    assert list(tokens_of_chunks([4, 4, 4], [1, 4, 5], 5)) == [1, 3, 1]


def test_tokens_beyond_the_chunks_are_spread_by_the_length_of_their_texts() -> None:
    assert list(tokens_of_chunks([5, 15, 5], [-1, -1, -1], 8)) == [2, 4, 2]


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=40).flatmap(
        lambda chars: st.tuples(st.just(chars), st.integers(1, 300))
    )
)
def test_all_tokens_are_given_to_chunks_and_the_gaps_fill_the_time(case: tuple[list[int], int]) -> None:
    characters, total = case
    tokens = tokens_of_chunks(characters, [-1] * len(characters), total)
    assert tokens.sum() == total
    assert (tokens >= (1 if total >= len(characters) else 0)).all()
    arrivals = np.cumsum(np.full(len(characters), 0.01))
    found = token_times(arrivals, tokens)
    assert found.first_tokens + len(found.gaps_s) == total
    last = arrivals[np.flatnonzero(tokens)[-1]]
    assert abs(found.gaps_s.sum() - (last - found.first_s)) < 1e-9
