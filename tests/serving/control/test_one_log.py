"""What runs live is what is simulated: one log of readings, fed to both, and every decision compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from testbed.random_clusters import Scripted
from wastenot.serving.bench.server_metrics import ServerReading
from wastenot.serving.cluster.model import ChangeTimes, Cluster, Start, Steered
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.control.instance import Instance, Rules
from wastenot.serving.control.sources import Heard
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.model.requests import Requests, joined
from wastenot.serving.policies.by_metrics import LEAST_READINGS, ByMetrics
from wastenot.serving.policies.by_name import maker_of
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.simulate import simulate

ENGINE = read_engine(Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json").engine()


@dataclass
class Logged(ByMetrics):
    """Keeps the readings, and what it decided."""

    log: list[tuple[float, ServerReading]] = field(default_factory=list)
    decided: list[int] = field(default_factory=list)

    def hear(self, at_s: float, reading: ServerReading) -> None:
        self.log.append((at_s, reading))
        super().hear(at_s, reading)

    def decide(self) -> int:
        self.decided.append(super().decide())
        return self.decided[-1]


def load(*rates_per_s: float) -> Requests:
    """Half a minute at each rate."""
    lengths = LogNormal(600, 0.8, 4000), LogNormal(150, 0.7, 800)
    parts = [poisson(rate, 30.0, *lengths, seed=seed) for seed, rate in enumerate(rates_per_s)]
    return joined(
        [Requests(each.arrival_s + 30.0 * place, each.prompt_tokens, each.output_tokens) for place, each in enumerate(parts)]
    )


def live(log: list[tuple[float, ServerReading]], deadlines: Deadlines) -> list[int]:
    """What ``serve-control`` chooses on a log: the index of the setting after each reading."""
    instance = Instance("http://a", (), ENGINE, Rules(deadlines, dry_run=True), lambda event: None)
    found = []
    for at_s, reading in log:
        instance.hear(Heard(0, at_s, reading), at_s)
        instance.check(at_s)
        found.append(instance.index)
    assert instance.state == "controlled"
    return found


@pytest.mark.parametrize("deadlines", [LITERATURE, Deadlines((1.0,), (), tbt_s=0.06)])
def test_the_live_controller_decides_as_the_simulated_policy_on_every_reading(
    deadlines: Deadlines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    policy = Logged()
    served = simulate(load(1.0, 12.0, 4.0, 0.5, 12.0, 1.0, 6.0), ENGINE, policy, deadlines=deadlines)
    assert len(policy.log) == len(policy.decided) + LEAST_READINGS - 1 > 110
    assert len(set(policy.decided)) > 3 and served.switches > 2
    assert live(policy.log, deadlines)[LEAST_READINGS - 1 :] == policy.decided


def test_servers_are_steered_by_the_policy_that_is_simulated_by_name() -> None:
    instance = Instance("http://a", (), ENGINE, Rules(dry_run=True), lambda event: None)
    named = maker_of("by-metrics")()
    named.begin(ENGINE, LITERATURE)
    assert instance.policy == named


def test_an_instance_of_a_cluster_decides_as_an_engine_alone() -> None:
    requests, alone, mine = load(2.0, 9.0), Logged(), Logged()
    simulate(requests, ENGINE, alone)
    cluster = Cluster((ENGINE,), 1, ChangeTimes((1.0,)))
    simulate_cluster(requests, cluster, Scripted([Start(0, 0, Steered(lambda: mine))], 1e6))
    assert mine.decided == alone.decided and len(alone.decided) > 50
    for (one_s, one), (other_s, other) in zip(mine.log, alone.log, strict=True):
        assert one_s == pytest.approx(other_s, rel=1e-9)
        assert one == other


def test_it_keeps_the_deadlines_for_less_than_the_greatest_clock() -> None:
    requests = load(2.0, 5.0, 3.0)
    served, greatest = simulate(requests, ENGINE, ByMetrics()), simulate(requests, ENGINE, Fixed())
    assert served.attainment(LITERATURE) >= 0.99
    assert served.total_energy_j < 0.9 * greatest.total_energy_j
    assert np.isfinite(served.finish_s).all()
