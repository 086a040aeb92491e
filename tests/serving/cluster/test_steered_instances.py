"""Instances that are steered by policies of their own: an engine is a cluster of one."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
import pytest

from testbed.random_clusters import Scripted
from testbed.random_serving import Whims, drawn
from wastenot.core.errors import BadInputError
from wastenot.serving.bench.server_metrics import ServerReading
from wastenot.serving.cluster.model import Action, ChangeTimes, ClockRule, Cluster, ClusterView, SetClock, Start, Steered
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.requests import Requests
from wastenot.serving.policies.by_metrics import ByMetrics
from wastenot.serving.policies.price import Price
from wastenot.serving.policies.throttle import Throttle
from wastenot.serving.policies.two_loops import TwoLoops
from wastenot.serving.simulation.policy import Choice, Policy, View
from wastenot.serving.simulation.simulate import simulate


@dataclass
class Reads(Whims):
    """Reads the metrics, too, each time that it is asked."""

    read: list[ServerReading] = field(default_factory=list)

    def choose(self, view: View) -> Choice:
        assert view.reading is not None
        self.read.append(view.reading())
        return super().choose(view)


@dataclass
class Always:
    """One setting, whether there is one or not."""

    setting: int
    begins: int | None = None
    name: str = "always"

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        return self.setting if self.begins is None else self.begins

    def choose(self, view: View) -> Choice:
        return Choice(self.setting)


def assert_alike(one: Reads, other: Reads) -> None:
    """Two policies saw the same."""
    assert len(one.seen) == len(other.seen)
    for mine, theirs in zip(one.seen, other.seen, strict=True):
        for each in fields(View)[:-1]:
            found, expected = getattr(mine, each.name), getattr(theirs, each.name)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=each.name)
    assert one.read == other.read


def one_engine(engine: Engine, deadlines: Deadlines) -> Cluster:
    return Cluster((engine,), 1, ChangeTimes((1.0,)), deadlines=deadlines)


@pytest.mark.parametrize("tens", [0, 1, *(pytest.param(more, marks=pytest.mark.slow) for more in range(2, 15))])
def test_an_engine_is_a_cluster_of_one(tens: int) -> None:
    """Whatever a policy asks for, it sees the same, and each request is answered at the same times at the same energy."""
    for seed in range(10 * tens, 10 * tens + 10):
        case = drawn(3 * seed)
        settings = len(case.engine.tables.settings)
        mine, alone = Reads(settings, seed), Reads(settings, seed)
        run = simulate_cluster(
            case.requests, one_engine(case.engine, case.deadlines),
            Scripted([Start(0, 0, Steered(lambda policy=mine: policy))], 1e6), predicted_tokens=case.predicted_tokens,
        )  # fmt: skip
        served = simulate(
            case.requests, case.engine, alone, deadlines=case.deadlines, predicted_tokens=case.predicted_tokens
        )
        assert_alike(mine, alone)
        np.testing.assert_allclose(run.first_token_s, served.first_token_s, rtol=1e-9)
        np.testing.assert_allclose(run.finish_s, served.finish_s, rtol=1e-9)
        np.testing.assert_array_equal(run.late_tokens, served.late_tokens)
        np.testing.assert_array_equal(run.gap_counts, served.gap_counts)
        assert run.switches == served.switches
        for kind, energy_j in served.energy_j.items():
            assert run.energy_j[kind] == pytest.approx(energy_j, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("make", "tbt_s"),
    [(Throttle, 0.05), (TwoLoops, 0.05), pytest.param(Price, 0.1, marks=pytest.mark.slow), (ByMetrics, 0.1)],
)
def test_each_instance_has_a_policy_of_its_own_which_does_as_it_does_alone(
    three_clocks: Engine, make: type[Policy], tbt_s: float
) -> None:
    requests = poisson(9.0, 30.0, LogNormal(300, 0.8, 2000), LogNormal(60, 0.6, 300), seed=3)
    cluster = Cluster((three_clocks,), 1, ChangeTimes((1.0,)), deadlines=Deadlines(tbt_s=tbt_s))
    run = simulate_cluster(requests, cluster, Scripted([Start(0, 0, Steered(make))] * 3, 5.0))
    energy_j = 0.0
    for instance in range(3):
        mine = run.instance == instance
        own = Requests(requests.arrival_s[mine], requests.prompt_tokens[mine], requests.output_tokens[mine])
        served = simulate(own, three_clocks, make(), deadlines=cluster.deadlines)
        np.testing.assert_allclose(run.finish_s[mine], served.finish_s, rtol=1e-9)
        energy_j += served.total_energy_j - served.energy_j["idle"]
    assert sum(run.energy_j[kind] for kind in ("prefill", "decode", "mixed")) == pytest.approx(energy_j, rel=1e-9)
    assert run.switches > 3


def test_a_policy_may_take_the_place_of_a_rule_and_a_rule_that_of_a_policy(three_clocks: Engine) -> None:
    requests = poisson(3.0, 40.0, LogNormal(300, 0.8, 2000), LogNormal(60, 0.6, 300), seed=4)
    lowest, greatest = (Steered(lambda setting=setting: Always(setting)) for setting in (0, 2))
    now = {10.0: greatest, 20.0: ClockRule.fixed(0, three_clocks), 30.0: greatest}

    def then(view: ClusterView) -> list[Action]:
        return [SetClock(0, now[view.now_s])] if view.now_s in now else []

    scripted = Scripted([Start(0, 0, lowest)], 5.0, then=then)
    run = simulate_cluster(requests, one_engine(three_clocks, Deadlines()), scripted, bin_s=1.0)
    for begin, end, mhz in ((1, 10, 1000.0), (11, 20, 2000.0), (21, 30, 1000.0), (31, 39, 2000.0)):
        np.testing.assert_allclose(run.timeline.clock_mhz[begin:end], mhz, rtol=0.02)
    assert run.switches == 3


def test_a_setting_that_is_none_is_refused(three_clocks: Engine) -> None:
    requests = Requests(np.zeros(1), np.array([10]), np.array([5]))
    for policy in (Always(3), Always(-1), Always(7, begins=0)):
        scripted = Scripted([Start(0, 0, Steered(lambda policy=policy: policy))])
        with pytest.raises(BadInputError, match="'always' requests setting"):
            simulate_cluster(requests, one_engine(three_clocks, Deadlines()), scripted)
