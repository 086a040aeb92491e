"""The account of missed deadlines that our policy goes by."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.steered_load import DEADLINES, load
from wastenot.serving.model.engine import Engine
from wastenot.serving.policies.load import Load
from wastenot.serving.policies.misses import Misses
from wastenot.serving.simulation.policy import Choice, View
from wastenot.serving.simulation.simulate import simulate


class Watching:
    """The lowest clock, which misses deadlines, and an account of them."""

    name = "watching"

    def begin(self, engine, deadlines):
        self.misses, self.load = Misses(deadlines), Load()
        return 0

    def choose(self, view: View) -> Choice:
        self.load.see(view)
        self.misses.see(view, self.load)
        return Choice(0, view.now_s)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_misses_are_those_of_the_run_however_wrong_lengths_were_predicted(three_clocks: Engine, factor: float) -> None:
    requests, watching = load(14.0, 60.0, 6), Watching()
    predicted = np.maximum(requests.output_tokens * factor, 1.0)
    run = simulate(requests, three_clocks, watching, deadlines=DEADLINES, predicted_tokens=predicted)
    missed = int((~DEADLINES.kept(run.requests, run)).sum())
    assert missed > 10
    assert watching.misses.begun == pytest.approx(len(requests), abs=1)
    assert watching.misses.missed == pytest.approx(missed, abs=2)


def test_the_nearer_to_what_is_allowed_the_dearer_is_another_miss() -> None:
    def price(begun: float, missed: float) -> float:
        return Misses(DEADLINES, begun, missed).price_j(1.0)

    assert price(1000, 0) == price(1000, 3) < price(1000, 5) < price(1000, 9) == price(1000, 30)
    assert price(20, 1) == price(20, 0), "a single one of few says little"
