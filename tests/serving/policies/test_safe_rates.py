"""Rates of requests from counts: on the safe side of chance, once; and changes are believed at once."""

import numpy as np
import pytest

from wastenot.serving.policies.by_metrics import LENGTHS_OVER_S, RATE_OVER_S, safely_per_s


def rates(arrival_s: np.ndarray, at_s: np.ndarray) -> np.ndarray:
    def counted(over_s: float) -> np.ndarray:
        return np.searchsorted(arrival_s, at_s) - np.searchsorted(arrival_s, at_s - over_s)

    windows = zip(counted(RATE_OVER_S), counted(LENGTHS_OVER_S), strict=True)
    return np.array([safely_per_s((few, RATE_OVER_S), (many, LENGTHS_OVER_S)) for few, many in windows])


@pytest.mark.parametrize("rate_per_s", [2.0, 4.0, 12.0])
def test_a_steady_load_is_hardly_taken_for_more(rate_per_s: float) -> None:
    arrival_s = np.cumsum(np.random.default_rng(8).exponential(1 / rate_per_s, int(3600 * rate_per_s)))
    found = rates(arrival_s, np.arange(LENGTHS_OVER_S, arrival_s[-1]))
    assert 1.05 < found.mean() / rate_per_s < 1.22
    assert (found >= rate_per_s).mean() > 0.93


def test_a_change_is_believed_within_the_short_window() -> None:
    """From 4 to 12 requests/s at 300 s, and back at 600 s."""
    arrival_s = np.concatenate([np.arange(0, 300, 1 / 4), np.arange(300, 600, 1 / 12), np.arange(600, 900, 1 / 4)])
    risen, fallen = rates(arrival_s, np.array([310.0])), rates(arrival_s, np.array([610.0]))
    assert 12.0 < risen[0] < 15.0 and 4.0 < fallen[0] < 6.0


def test_nothing_that_came_is_a_low_rate() -> None:
    assert safely_per_s((0.0, RATE_OVER_S), (0.0, LENGTHS_OVER_S)) == pytest.approx(1 / LENGTHS_OVER_S)
