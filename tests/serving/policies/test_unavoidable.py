"""First tokens that no clock could have brought in time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from testbed.steered_load import DEADLINES, load
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.model.step_costs import StepCosts
from wastenot.serving.policies.misses import Unavoidable
from wastenot.serving.simulation.policy import Choice, Fixed, View
from wastenot.serving.simulation.simulate import simulate


class Counting:
    """One clock, and an account of what no clock could have helped."""

    name = "counting"

    def __init__(self, setting: int) -> None:
        self.setting = setting

    def begin(self, engine, deadlines):
        self.unavoidable = Unavoidable(engine, deadlines, StepCosts(engine.tables))
        return self.setting

    def choose(self, view: View) -> Choice:
        self.unavoidable.see(view)
        return Choice(self.setting, view.now_s)


def too_late(requests: Requests, engine: Engine) -> int:
    """First tokens at the greatest clock."""
    run = simulate(requests, engine, Fixed(), deadlines=DEADLINES)
    return int((run.first_token_s - requests.arrival_s > DEADLINES.ttft_of(requests.prompt_tokens)).sum())


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("setting", [0, 2])
def test_where_nothing_decodes_they_are_those_of_the_greatest_clock(
    three_clocks: Engine, chunked: bool, setting: int
) -> None:
    engine, requests = replace(three_clocks, chunked=chunked), load(30.0, 120.0, 3)
    prompts = Requests(requests.arrival_s, requests.prompt_tokens, np.ones_like(requests.output_tokens))
    counting = Counting(setting)
    simulate(prompts, engine, counting, deadlines=DEADLINES)
    assert counting.unavoidable.count == pytest.approx(too_late(prompts, engine), abs=1)


def test_where_requests_decode_they_are_no_more(three_clocks: Engine) -> None:
    requests, counting = load(26.0, 120.0, 4), Counting(0)
    simulate(requests, three_clocks, counting, deadlines=DEADLINES)
    assert 0 < counting.unavoidable.count <= too_late(requests, three_clocks)
