from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from testbed.against_plain_engine import assert_alike, both
from testbed.random_serving import Whims, drawn
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.simulation.costs import BURST_S
from wastenot.serving.model import compiled
from wastenot.serving.model.engine import Engine, core_clocks_mhz
from wastenot.serving.model.engine_tables import OutsideProfileError
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import Choice, Fixed, View
from wastenot.serving.simulation.served import GAP_EDGES_S
from wastenot.serving.simulation.simulate import simulate


@pytest.mark.parametrize("tens", [*range(6), *(pytest.param(more, marks=pytest.mark.slow) for more in range(6, 25))])
def test_the_simulator_is_equal_to_a_plain_one_step_by_step_with_all_that_its_policy_sees(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        case = drawn(seed)
        whims, others = Whims(len(case.engine.tables.settings), seed), Whims(len(case.engine.tables.settings), seed)
        assert_alike(*both(case, whims, others, 0.013 if seed % 4 == 0 else None))
        assert len(whims.seen) == len(others.seen)
        np.testing.assert_allclose(flat(whims.seen), flat(others.seen), rtol=1e-9, err_msg=str(seed))


def test_steps_with_prompts_wait_for_their_launch() -> None:
    waited = 0.0
    for seed in range(20):
        case = drawn(seed)
        case = replace(case, engine=replace(case.engine, launch_s=0.07, graph_launch_s=0.03, most_graph_tokens=12))
        whims, others = Whims(len(case.engine.tables.settings), seed), Whims(len(case.engine.tables.settings), seed)
        fast, plain = both(case, whims, others)
        assert_alike(fast, plain)
        waited += fast.energy_j["idle"]
    assert waited > 0.0


def test_steps_with_prompts_keep_to_the_power_limit_but_for_a_burst() -> None:
    slower = 0
    for seed in range(30):
        case = drawn(seed)
        tables = case.engine.tables
        limit_w = 0.9 * float(np.nanmax(tables.decode_energy_j / tables.decode_time_s))
        engine = replace(case.engine, limit_w=limit_w, launch_s=0.02, graph_launch_s=0.01, most_graph_tokens=12)
        decode_j = np.minimum(tables.decode_energy_j, 0.95 * limit_w * tables.decode_time_s)
        heavier = replace(tables, decode_energy_j=decode_j, prefill_energy_j=1.5 * limit_w * tables.prefill_time_s)
        case = replace(case, engine=replace(engine, tables=heavier))
        fast, plain = both(case, *(Whims(len(tables.settings), seed) for _ in range(2)))
        assert_alike(fast, plain)
        free = simulate(case.requests, replace(case.engine, limit_w=None), Fixed(0))
        held = simulate(case.requests, case.engine, Fixed(0), timeline_s=0.1)
        assert held.timeline is not None
        drawn_j = np.concatenate([[0.0], np.cumsum(held.timeline.energy_j)])
        above_j = drawn_j - limit_w * held.timeline.bin_s * np.arange(len(drawn_j))
        assert (above_j - np.minimum.accumulate(above_j)).max() <= 1.001 * BURST_S * limit_w
        slower += sum(held.energy_j[kind] for kind in ("prefill", "mixed")) < 0.99 * sum(
            free.energy_j[kind] for kind in ("prefill", "mixed")
        )
    assert slower > 8


def flat(views: list[View]) -> np.ndarray:
    """All that a policy saw, and how much of each."""
    seen = [np.atleast_1d(getattr(view, each.name)) for view in views for each in fields(View)[:-1]]  # but the reading
    return np.concatenate([np.array([len(each) for each in seen]), *seen])


def test_the_cases_drawn_preempt_switch_and_leave_requests_late() -> None:
    runs = [
        simulate(case.requests, case.engine, Whims(len(case.engine.tables.settings), seed), deadlines=case.deadlines)
        for seed, case in ((seed, drawn(seed)) for seed in range(120))
    ]
    assert sum(run.preemptions.sum() > 0 for run in runs) > 8
    assert sum(run.preemptions.max() > 1 for run in runs) > 1
    assert sum(run.switches > 3 for run in runs) > 30
    assert sum(0 < run.late_tokens.sum() < run.requests.output_tokens.sum() / 2 for run in runs) > 15
    assert sum(run.steps["mixed"] > 0 for run in runs) > 15


def test_a_policy_that_never_changes_its_mind_need_not_be_asked() -> None:
    class Steady:
        name = "steady"

        def begin(self, engine: Engine, deadlines: object) -> int:
            return 0

        def choose(self, view: View) -> Choice:
            return Choice(0)

    for seed in range(40):
        case = drawn(seed)
        asked = simulate(case.requests, case.engine, Steady())
        assert_alike(simulate(case.requests, case.engine, Fixed(0)), asked)


def test_a_run_is_the_same_without_the_compiler() -> None:
    script = """
import sys
sys.modules["numba"] = None
from testbed.against_plain_engine import assert_alike, both
from testbed.random_serving import Whims, drawn
from wastenot.serving.model import compiled
assert not compiled.COMPILED
for seed in range(20):
    case = drawn(seed)
    assert_alike(*both(case, *(Whims(len(case.engine.tables.settings), seed) for _ in range(2))))
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("seed", range(0, 300, 21))
def test_a_timeline_adds_up_to_the_run(seed: int) -> None:
    case = drawn(seed)
    policy = Whims(len(case.engine.tables.settings), seed)
    for width in (0.004, 0.2, 50.0):
        run = simulate(case.requests, case.engine, policy, deadlines=case.deadlines, timeline_s=width)
        line = run.timeline
        assert line is not None
        assert line.energy_j.sum() == pytest.approx(run.total_energy_j, rel=1e-9)
        lasted, clocks = line.lasted_s, core_clocks_mhz(case.engine)
        assert line.core_mhz @ lasted == pytest.approx(0.0 if clocks is None else run.setting_s @ clocks, rel=1e-9)
        np.testing.assert_allclose(lasted[:-1], line.bin_s, rtol=1e-6)
        assert (len(lasted) - 1) * line.bin_s < run.end_s <= len(lasted) * line.bin_s
        assert line.tokens.sum() == case.requests.output_tokens.sum()
        # Little's law, exact for a run from empty to empty: the requests there = the times that each was there.
        there = float(((line.running + line.waiting) * lasted).sum())
        assert there == pytest.approx(float((run.finish_s - case.requests.arrival_s).sum()), rel=1e-9)
        longest = np.searchsorted(GAP_EDGES_S, line.longest_gap_s.max(initial=0.0), side="right")
        assert longest == np.flatnonzero(run.gap_counts).max(initial=0)


def test_a_request_that_the_cache_cannot_hold_is_named(three_clocks: Engine) -> None:
    requests = Requests(np.array([0.0, 1.0]), np.array([10, 60]), np.array([5, 5]))
    small = replace(three_clocks, cache_blocks=4)
    with pytest.raises(
        BadInputError, match=r"request 2: 60 \+ 5 tokens do not fit into the cache of 64 tokens; leave it out"
    ):
        simulate(requests, small, Fixed())


def test_a_step_that_the_tables_do_not_cover_is_said_in_a_line(three_clocks: Engine) -> None:
    requests = Requests(np.array([0.0]), np.array([9000]), np.array([5]))
    with pytest.raises(OutsideProfileError, match="a prefill step with 4608 tokens before them is outside the profile"):
        simulate(requests, three_clocks, Fixed())
    with pytest.raises(OutsideProfileError, match="a prefill step with 9000 new tokens is outside the profile"):
        simulate(requests, replace(three_clocks, most_step_tokens=10_000), Fixed())
    unknown = three_clocks.tables.decode_time_s.copy()
    unknown[:, 1, 1] = np.nan
    partly = replace(three_clocks, tables=replace(three_clocks.tables, decode_time_s=unknown))
    many = Requests(np.zeros(3), np.full(3, 100), np.full(3, 5))
    with pytest.raises(OutsideProfileError, match="a decode step of 3 sequences"):
        simulate(many, partly, Fixed())


def test_settings_that_make_no_run_are_said_so(three_clocks: Engine) -> None:
    one = Requests(np.array([0.0]), np.array([9]), np.array([1]))
    with pytest.raises(BadInputError, match="timeline_s"):
        simulate(one, three_clocks, Fixed(), timeline_s=0.0)
    with pytest.raises(BadInputError, match="must be at least 1"):
        simulate(one, replace(three_clocks, most_running=0), Fixed())
    with pytest.raises(BadInputError, match="the policy 'maximum clock' requests setting 3; settings are 0 to 2"):
        simulate(one, three_clocks, Fixed(3))
    wild = Whims(7, seed=3)
    with pytest.raises(BadInputError, match="the policy 'whims' requests setting"):
        simulate(Requests(np.arange(50.0), np.full(50, 9), np.full(50, 9)), three_clocks, wild)


def test_nothing_to_serve_takes_no_time(three_clocks: Engine) -> None:
    none = Requests(np.array([]), np.array([], dtype=np.intp), np.array([], dtype=np.intp))
    run = simulate(none, three_clocks, Fixed(), timeline_s=1.0)
    assert run.end_s == run.total_energy_j == 0.0


def test_it_is_compiled_where_numba_is_installed() -> None:
    pytest.importorskip("numba")
    assert compiled.COMPILED
