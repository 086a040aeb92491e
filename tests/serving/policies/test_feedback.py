"""Missed deadlines that a server measured raise the clock no further than to the maximum."""

from __future__ import annotations

import math

import pytest

from testbed.steered_load import DEADLINES
from wastenot.serving.bench.server_metrics import LatencyCounts, ServerReading
from wastenot.serving.policies.by_metrics import Feedback

ROOM = 5
"""Steps from the setting that the profile asks for to the maximum clock."""


def reading(tokens: float, late: float) -> ServerReading:
    """So many times between tokens, of which so many were late."""
    edges = (0.5 * DEADLINES.tbt_s, 2.0 * DEADLINES.tbt_s, math.inf)
    return ServerReading(8.0, 0.0, tbt=LatencyCounts(edges, (tokens - late, tokens, tokens)))


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_steps_do_not_wind_up_beyond_the_maximum_clock(share: float) -> None:
    feedback, steps, late = Feedback(), [], 0.0
    now = reading(0.0, 0.0)
    for at_s in range(1, 10):
        before, late = now, late + 1000.0 * share
        now = reading(1000.0 * at_s, late)
        most = ROOM if at_s < 9 else 2  # the last by itself asks for a high clock, which takes nothing back
        feedback.see(at_s, now, (at_s - 1, before), DEADLINES, 1.0, most)
        steps.append(feedback.steps)
    assert steps == [0, 1, 3, 5, 5, 5, 5, 5, 5]
    for at_s in (45, 80, 115):
        before, now = now, reading(1000.0 * at_s, late)
        feedback.see(at_s, now, (at_s - 1, before), DEADLINES, 1.0, ROOM)
        steps.append(feedback.steps)
    assert steps[-3:] == [4, 3, 2], "one is taken back each half a minute"
