from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from testbed.random_clusters import Case, Follows, digits, drawn_cluster, run_of
from wastenot.serving.cluster.model import ClusterServed
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.served import Served
from wastenot.serving.simulation.simulate import simulate


def part(case: Case, run: ClusterServed, instance: int) -> tuple[np.ndarray, Served, float]:
    """Which requests an instance answered, how an engine alone would have, and the energy it takes idle until the end."""
    mine, requests = np.flatnonzero(run.instance == instance), case.requests
    mine = mine[np.lexsort((run.first_token_s[mine], run.sent_s[mine]))]
    held = run.sent_s[mine] > requests.arrival_s[mine]
    at_s = np.where(held, run.sent_s[mine] - HAIR_S, run.sent_s[mine])  # those that are held are sent at a boundary
    cached = None if requests.cached_tokens is None else requests.cached_tokens[mine]
    sent = Requests(at_s, requests.prompt_tokens[mine], requests.output_tokens[mine], cached)
    policy = Follows(case.rules[instance])
    # One step after the other, as a timeline is asked for; the cluster takes many in one go.
    served = simulate(sent, case.engine, policy, deadlines=case.cluster.deadlines, timeline_s=1.0)
    return mine, served, served.energy_j["idle"] + policy.rests_j(served, run.end_s)


HAIR_S = 1e-10
"""Much less than a step."""


@pytest.mark.parametrize("tens", [0, 1, 2, *(pytest.param(more, marks=pytest.mark.slow) for more in range(3, 15))])
def test_each_instance_answers_what_it_is_sent_as_an_engine_alone_would(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        case = drawn_cluster(seed)
        run = run_of(case, seed, hold=seed % 3 == 0)
        alone = [part(case, run, instance) for instance in range(len(case.rules))]
        for mine, served, _ in alone:
            np.testing.assert_allclose(run.first_token_s[mine], served.first_token_s, rtol=1e-9)
            np.testing.assert_allclose(run.finish_s[mine], served.finish_s, rtol=1e-9)
            np.testing.assert_array_equal(run.late_tokens[mine], served.late_tokens)
        for kind in ("prefill", "decode", "mixed"):
            assert run.energy_j[kind] == pytest.approx(sum(served.energy_j[kind] for _, served, _ in alone), rel=1e-9)
        assert run.energy_j["idle"] == pytest.approx(sum(idle_j for _, _, idle_j in alone), rel=1e-9)
        np.testing.assert_array_equal(run.gap_counts, sum(served.gap_counts for _, served, _ in alone))
        assert run.timeline.energy_j.sum() == pytest.approx(run.total_energy_j, rel=1e-9)


def test_the_cases_drawn_preempt_switch_and_leave_tokens_late() -> None:
    preempted = late = mixed = several = 0
    for seed in range(40):
        case = drawn_cluster(seed)
        run = run_of(case, seed)
        alone = [served for _, served, _ in (part(case, run, instance) for instance in range(len(case.rules)))]
        preempted += sum(served.preemptions.sum() > 0 for served in alone)
        mixed += sum(served.steps["mixed"] > 0 for served in alone)
        late += 0 < run.late_tokens.sum() < case.requests.output_tokens.sum() / 2
        several += len(set(run.instance.tolist())) > 1
    assert preempted > 5 and mixed > 10 and late > 3 and several > 20


def test_a_run_is_the_same_to_the_last_digit_without_the_compiler() -> None:
    script = """
import sys
sys.modules["numba"] = None
from testbed.random_clusters import digits
for seed in range(20):
    print(digits(seed))
"""
    root = Path(__file__).parents[3]
    plain = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True).stdout
    assert plain.splitlines() == [digits(seed) for seed in range(20)]
