from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.model.loads import LogNormal, at_rate, bursty, poisson
from wastenot.serving.model.requests import Requests

TRACE = poisson(2.0, 500.0, LogNormal(300, 1.0), LogNormal(100, 0.8), seed=3)


def in_full(requests: Requests) -> Counter[tuple[float, int, int]]:
    columns = (requests.arrival_s, requests.prompt_tokens, requests.output_tokens)
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


def test_a_trace_at_its_own_rate_is_itself() -> None:
    same = at_rate(TRACE, len(TRACE) / 500.0, 500.0)
    assert in_full(same) == in_full(TRACE)


@pytest.mark.parametrize("rate", [0.3, 1.1, 5.0, 13.7])
def test_a_trace_at_a_rate_takes_as_long_and_has_as_many_requests(rate: float) -> None:
    load = at_rate(TRACE, rate, 500.0)
    assert len(load) == pytest.approx(rate * 500, abs=3 * math.sqrt(rate * 500))
    assert 0 <= load.arrival_s[0] <= load.arrival_s[-1] < 500
    pairs = set(zip(TRACE.prompt_tokens.tolist(), TRACE.output_tokens.tolist(), strict=True))
    assert set(zip(load.prompt_tokens.tolist(), load.output_tokens.tolist(), strict=True)) <= pairs


def test_the_load_at_a_lower_rate_is_part_of_that_at_a_higher_one() -> None:
    assert not in_full(at_rate(TRACE, 1.3, 500.0)) - in_full(at_rate(TRACE, 1.4, 500.0))
    assert not in_full(at_rate(TRACE, 3.3, 500.0)) - in_full(at_rate(TRACE, 7.4, 500.0))


def test_poisson_loads_have_the_rate_and_lengths_asked_for() -> None:
    load = poisson(50.0, 1000.0, LogNormal(400, 0.5, most=2000), LogNormal(120), seed=1)
    gaps = np.diff(load.arrival_s)
    assert gaps.mean() == pytest.approx(0.02, rel=0.02)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)
    assert np.median(load.prompt_tokens) == pytest.approx(400, rel=0.02)
    assert np.log(load.prompt_tokens).std() == pytest.approx(0.5, rel=0.02)
    assert load.prompt_tokens.max() <= 2000
    assert set(load.output_tokens.tolist()) == {120}


@pytest.mark.parametrize("burstiness", [0.2, 1.0, 3.0])
def test_bursty_loads_have_the_rate_and_the_variation_of_gaps_asked_for(burstiness: float) -> None:
    load = bursty(50.0, 4000.0, LogNormal(100, 0.5), LogNormal(10), burstiness, seed=2)
    gaps = np.diff(load.arrival_s)
    assert len(load) == pytest.approx(200_000, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness, rel=0.03)
    assert np.corrcoef(gaps[1:], gaps[:-1])[0, 1] == pytest.approx(0.0, abs=0.02)  # each gap by itself
    assert load.arrival_s[0] >= 0 and load.arrival_s[-1] < 4000.0
    assert np.median(load.prompt_tokens) == pytest.approx(100, rel=0.02)


def test_a_bursty_load_begins_as_it_lasts() -> None:
    first = [len(bursty(2.0, 5.0, LogNormal(9), LogNormal(9), 3.0, seed=seed)) for seed in range(800)]
    assert np.mean(first) == pytest.approx(10.0, rel=0.15)


def test_rates_and_durations_that_make_no_load_are_said_so() -> None:
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(BadInputError, match=r"rate_per_s \(.*\) must be above 0"):
            at_rate(TRACE, wrong, 500.0)
        with pytest.raises(BadInputError, match="must be above 0"):
            poisson(wrong, 10.0, LogNormal(1), LogNormal(1))
    with pytest.raises(BadInputError, match="when the last one comes"):
        at_rate(TRACE, 1.0, 100.0)
    with pytest.raises(BadInputError, match="no requests"):
        at_rate(TRACE.part(1e6, 2e6), 1.0, 500.0)


def test_requests_must_be_in_order_with_whole_lengths() -> None:
    good = (np.array([0.0, 1.0]), np.array([5, 6]), np.array([1, 2]))
    for index, column, said in (
        (0, np.array([1.0, 0.5]), "request 2 arrives before"),
        (0, np.array([-1.0, 0.5]), "arrival_s"),
        (0, np.array([0.0, np.nan]), "arrival_s"),
        (0, np.array([0.0]), "1 arrivals with 2 prompts"),
        (1, np.array([5, 0]), "prompt_tokens"),
        (2, np.array([1.5, 2.0]), "output_tokens"),
    ):
        with pytest.raises(BadInputError, match=said):
            Requests(*(column if place == index else each for place, each in enumerate(good)))


def test_a_part_counts_from_its_beginning() -> None:
    part = TRACE.part(100.0, 200.0)
    inside = (TRACE.arrival_s >= 100) & (TRACE.arrival_s < 200)
    np.testing.assert_array_equal(part.arrival_s, TRACE.arrival_s[inside] - 100.0)
    np.testing.assert_array_equal(part.output_tokens, TRACE.output_tokens[inside])


def test_what_is_cached_stays_with_its_request() -> None:
    load = Requests(np.array([0.0, 1.0, 4.0]), np.array([10, 20, 30]), np.array([1, 2, 3]), np.array([0, 19, 7]))
    for changed in (load.part(0.5, 9.0), load.only(np.array([2])), at_rate(load, 3.0, 10.0, seed=1)):
        assert changed.cached_tokens is not None
        known = dict(zip(load.prompt_tokens.tolist(), [0, 19, 7], strict=True))
        assert [known[each] for each in changed.prompt_tokens.tolist()] == changed.cached_tokens.tolist()
    for bad in ([0, 20, 7], [0, -1, 7], [0, 1]):
        with pytest.raises(BadInputError, match="fewer than those of the prompt"):
            Requests(load.arrival_s, load.prompt_tokens, load.output_tokens, np.array(bad))
