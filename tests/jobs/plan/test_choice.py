from __future__ import annotations

import numpy as np
import pytest

from wastenot.jobs.plan.choice import Prospect, stop_after, worth

RECURRENCES = 100.0


def prospect(times: float, spread: float, epoch: float) -> Prospect:
    """A batch size that costs 100, as is known, and one that is expected to cost so many times as much."""
    log_cost = np.log(np.array([100.0, 100.0 * times]))
    variance = np.array([0.01, spread]) ** 2
    return Prospect(
        log_cost=log_cost,
        covariance=np.diag(variance),
        noise=np.array([0.02, 0.08]),
        chance=np.array([0.99, 0.8]),
        chance_after=np.array([[0.99, 0.8], [0.99, 0.9]]),
        epoch_cost=np.array([25.0, epoch]),
        early=np.zeros(0, dtype=np.intp),
        early_log_cost=np.zeros(0),
        apart=np.stack((log_cost, variance)),
        most_epochs=100.0,
    )


@pytest.mark.parametrize(("times", "spread"), [(1.2, 0.45), (1.6, 0.45), (2.0, 0.6)])
@pytest.mark.parametrize("epoch", [5.0, 14.0])
def test_a_run_that_explores_lasts_until_its_outcome_tells_something(times: float, spread: float, epoch: float) -> None:
    believed = prospect(times, spread, epoch)
    assert worth(believed, RECURRENCES).total[1] < 0.0
    middle = 100.0 * times / epoch
    assert stop_after(believed, 1, RECURRENCES) >= 0.8 * middle
