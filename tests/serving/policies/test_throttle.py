from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.model.step_costs import flat_tables
from wastenot.serving.policies.projection import keeps, limits_of
from wastenot.serving.policies.throttle import Throttle
from wastenot.serving.simulation.policy import Choice, Fixed, View
from wastenot.serving.simulation.simulate import simulate


@dataclass(slots=True)
class Looks:
    """Keeps what it sees on the first of its steps after a time, and stays at one clock."""

    setting: int
    after_s: float
    name: str = "looks"
    seen: View | None = field(default=None)

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        return self.setting

    def choose(self, view: View) -> Choice:
        if self.seen is None and view.now_s >= self.after_s:
            self.seen = View(
                *(
                    np.array(value) if isinstance(value := getattr(view, name), np.ndarray) else value
                    for name in View.__slots__[:-1]  # but the reading
                )
            )
        return Choice(self.setting, self.after_s if self.seen is None else np.inf)


def all_at_once(seed: int) -> Requests:
    random = np.random.default_rng(seed)
    number = int(random.integers(1, 12))
    return Requests(np.zeros(number), random.integers(5, 1200, number), random.integers(1, 80, number))


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("after_s", [0.0, 0.4])
def test_what_is_projected_is_what_comes_if_nothing_else_does(
    three_clocks: Engine, *, chunked: bool, after_s: float
) -> None:
    engine, answers = replace(three_clocks, chunked=chunked, overhead_s=0.001), []
    for seed in range(60):
        requests, random = all_at_once(seed), np.random.default_rng(1000 + seed)
        deadlines = Deadlines(
            ttft_s=(float(random.uniform(0.3, 1.2)),),
            prompt_below=(),
            tbt_s=float(random.uniform(0.03, 0.3)) if after_s == 0.0 else np.inf,  # no gap before the look counts
            end_to_end_s=float(random.uniform(1.0, 4.0)) if seed % 2 else None,
        )
        looks = Looks(seed % 3, after_s)
        served = simulate(requests, engine, looks, deadlines=deadlines)
        if looks.seen is None:
            continue
        now_s = looks.seen.now_s
        kept = bool((served.first_token_s <= deadlines.ttft_s[0])[served.first_token_s > now_s].all())
        kept &= not served.late_tokens.any()
        if deadlines.end_to_end_s is not None:
            kept &= bool((served.finish_s <= deadlines.end_to_end_s)[served.finish_s > now_s].all())
        answers.append(kept)
        assert keeps(looks.seen, flat_tables(engine.tables), seed % 3, limits_of(engine, deadlines), deadlines) == kept, seed
    assert 5 < sum(answers) < len(answers) - 5  # both happen


def first_choice(engine: Engine, requests: Requests, deadlines: Deadlines, policy: Throttle) -> int:
    looks = Looks(0, 0.0)
    simulate(requests, engine, looks, deadlines=deadlines)
    assert looks.seen is not None
    policy.begin(engine, deadlines)
    return policy.choose(looks.seen).setting


def test_the_lowest_clock_that_keeps_all_deadlines_is_asked_for(three_clocks: Engine) -> None:
    engine, chosen = replace(three_clocks, switch_s=0.0), set()
    for seed in range(30):
        requests = all_at_once(seed)
        deadlines = Deadlines(ttft_s=(0.4,), prompt_below=(), share=1.0, end_to_end_s=2.0)
        keep = [
            simulate(requests, engine, Fixed(setting), deadlines=deadlines).attainment(deadlines) == 1.0
            for setting in range(3)
        ]
        lowest = keep.index(True) if any(keep) else 2
        assert first_choice(engine, requests, deadlines, Throttle()) == lowest
        chosen.add(lowest)
    assert chosen == {0, 1, 2}


def test_predictions_made_longer_raise_the_clock(three_clocks: Engine) -> None:
    requests = Requests(np.zeros(1), np.array([100]), np.array([100]))
    alone_s = simulate(requests, three_clocks, Fixed(0)).finish_s[0]
    deadlines = Deadlines(ttft_s=(1.0,), prompt_below=(), end_to_end_s=float(alone_s) * 1.01)
    assert first_choice(three_clocks, requests, deadlines, Throttle()) == 0
    assert first_choice(three_clocks, requests, deadlines, Throttle(inflate=1.1)) == 1
    assert first_choice(three_clocks, requests, deadlines, Throttle(inflate=2.0)) == 2


def test_a_prompt_that_is_late_already_is_taken_at_the_greatest_clock(three_clocks: Engine) -> None:
    deadlines = Deadlines(ttft_s=(0.1,), prompt_below=())
    requests = Requests(np.zeros(8), np.full(8, 1000), np.full(8, 2))
    looks = Looks(0, 0.2)
    simulate(requests, three_clocks, looks, deadlines=deadlines)
    assert looks.seen is not None
    assert len(looks.seen.waiting_tokens)
    policy = Throttle()
    policy.begin(three_clocks, deadlines)
    assert policy.choose(looks.seen).setting == 2
    late = replace(looks.seen, waiting_arrival_s=np.full(len(looks.seen.waiting_tokens), 0.15))
    assert policy.choose(replace(late, waiting_tokens=np.full(len(late.waiting_tokens), 1.0))).setting < 2


def test_no_clock_below_the_floor_is_asked_for(three_clocks: Engine) -> None:
    requests = Requests(np.zeros(1), np.array([10]), np.array([5]))
    assert first_choice(three_clocks, requests, Deadlines(), Throttle()) == 0
    assert first_choice(three_clocks, requests, Deadlines(), Throttle(floor=1)) == 1
