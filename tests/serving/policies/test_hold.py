"""A policy that holds prompts back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import Choice, View
from wastenot.serving.simulation.simulate import simulate


@dataclass(slots=True)
class Holds:
    """One clock; prompts that come while others decode are held back until a time."""

    until_s: float
    name: str = "holds"

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        return 2

    def choose(self, view: View) -> Choice:
        return Choice(2, math.inf, self.until_s)


def test_prompts_wait_while_others_decode_and_not_longer(three_clocks: Engine) -> None:
    requests = Requests(np.array([0.0, 0.1]), np.array([100, 300]), np.array([100, 5]))
    free = simulate(requests, three_clocks, Holds(-math.inf))
    held = simulate(requests, three_clocks, Holds(0.5))
    assert free.first_token_s[1] < 0.2
    first = three_clocks.tables.prefill(2, 100).time_s
    assert held.first_token_s[0] == pytest.approx(first), "there is nothing to decode that it could be held back for"
    mixed = three_clocks.tables.mixed(2, 300, 0, 1, 100).time_s
    step = three_clocks.tables.decode(2, 1, 130).time_s
    assert 0.5 < held.first_token_s[1] < 0.5 + mixed + 1.1 * step
    assert sum(held.gap_counts) == sum(free.gap_counts) == (requests.output_tokens - 1).sum()


def test_a_hold_ends_when_nothing_decodes_any_more(three_clocks: Engine) -> None:
    requests = Requests(np.array([0.0, 0.02]), np.array([100, 300]), np.array([10, 5]))
    held = simulate(requests, three_clocks, Holds(1000.0), deadlines=LITERATURE)
    assert held.finish_s[0] < held.first_token_s[1] < 1.0
