"""Controllers in the simulator: deadlines kept at less energy, by the parts of each that are switched on."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.cluster_loads import ClusterResult, result_of
from wastenot.core.arrays import FloatArray
from wastenot.serving.cluster.best_static import best_static
from wastenot.serving.cluster.controllers.dynamo import Dynamo
from wastenot.serving.cluster.controllers.fixed import multi_pool, single_pool
from wastenot.serving.cluster.controllers.parking import Parking
from wastenot.serving.cluster.demand import Demand
from wastenot.serving.cluster.model import Assign, Cluster, Controller, InstanceState, Park, Reshard, Start, Stop, Wake
from wastenot.serving.cluster.oracle import step_bound
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.cluster.results import Work
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.requests import Requests

LASTS_S, THIRD_S = 600.0, 200.0


@pytest.fixture(scope="module")
def load() -> Requests:
    """Ten requests a second, one in the middle third."""
    whole = poisson(10.0, LASTS_S, LogNormal(500, 1.0, 3000), LogNormal(150, 0.9, 800), seed=21)
    quiet = (whole.arrival_s > THIRD_S) & (whole.arrival_s < 2 * THIRD_S)
    some = ~quiet | (np.arange(len(whole)) % 10 == 0)
    return Requests(whole.arrival_s[some], whole.prompt_tokens[some], whole.output_tokens[some])


def slots(requests: Requests, blend: FloatArray, slot_s: float) -> FloatArray:
    """Rates by slot and class, as in the past."""
    return np.bincount((requests.arrival_s / slot_s).astype(int))[:, None] / slot_s * blend


def run(requests: Requests, cluster: Cluster, controller: Controller) -> ClusterResult:
    return result_of(simulate_cluster(requests, cluster, controller), requests, cluster)


def test_ours_keeps_deadlines_for_less_than_a_single_pool_and_more_than_the_bound(
    load: Requests, small_cluster: Cluster, profiles: Profiles, blend: FloatArray
) -> None:
    rates = slots(load, blend, THIRD_S)
    single = run(load, small_cluster, single_pool(profiles, rates.max(axis=0), head_room=0.2))
    ours = run(load, small_cluster, Parking(profiles, Demand(rates, THIRD_S)))
    assert single.attainment > 0.99
    assert ours.attainment > 0.99
    assert ours.energy_j < 0.8 * single.energy_j
    assert ours.energy_j > step_bound(Work.of(load), small_cluster)


def test_ours_parks_when_it_is_quiet_and_wakes_afterwards(
    load: Requests, small_cluster: Cluster, profiles: Profiles, blend: FloatArray
) -> None:
    load = Requests(*(np.repeat(each, 4) for each in (load.arrival_s, load.prompt_tokens, load.output_tokens)))
    most = Demand(slots(load, blend, THIRD_S).max(axis=0)[None], follows=False)
    served = simulate_cluster(load, small_cluster, Parking(profiles, most))
    parked = [each.at_s for each in served.log if isinstance(each.action, Park)]
    woken = [each.at_s for each in served.log if isinstance(each.action, Wake)]
    assert any(THIRD_S < at_s < 2 * THIRD_S for at_s in parked)
    assert any(at_s > 2 * THIRD_S for at_s in woken)
    assert not [each for each in served.log if each.refused]


@pytest.mark.parametrize("rate_per_s", [16.0, 17.0, 18.0])
def test_ours_starts_in_time_for_what_is_forecast(
    small_cluster: Cluster, profiles: Profiles, blend: FloatArray, rate_per_s: float
) -> None:
    few = poisson(3.0, 900.0, LogNormal(500, 1.0, 3000), LogNormal(150, 0.9, 800), seed=1)
    many = poisson(rate_per_s, 600.0, LogNormal(500, 1.0, 3000), LogNormal(150, 0.9, 800), seed=2)
    load = Requests(
        np.concatenate([few.arrival_s, 900.0 + many.arrival_s]),
        np.concatenate([few.prompt_tokens, many.prompt_tokens]),
        np.concatenate([few.output_tokens, many.output_tokens]),
    )
    served = simulate_cluster(load, small_cluster, Parking(profiles, Demand(slots(load, blend, 900.0), 900.0)))
    result = result_of(served, load, small_cluster)
    assert result.attainment > 0.99
    assert any(isinstance(each.action, Start) and 0 < each.at_s < 900.0 for each in served.log)


@pytest.mark.parametrize(
    ("knob", "allowed"),
    [("instances", (Start, Stop, Assign)), ("shards", (Reshard,)), ("clocks", ())],
)
def test_each_knob_of_dynamo_turns_alone(
    load: Requests, small_cluster: Cluster, profiles: Profiles, blend: FloatArray, knob: str, allowed: tuple[type, ...]
) -> None:
    every = {each: each == knob for each in ("instances", "shards", "clocks")}
    rates = slots(load, blend, THIRD_S)
    served = simulate_cluster(load, small_cluster, Dynamo(profiles, Demand(rates, THIRD_S), **every))
    others = {Start, Stop, Assign, Reshard, Park, Wake} - set(allowed)
    later = [each.action for each in served.log if each.at_s > 0]
    assert not [each for each in later if type(each) in others]
    assert (served.switches > 0) == (knob == "clocks")
    assert np.isfinite(served.finish_s).all()


@pytest.mark.slow
def test_emergencies_help_dynamo_through_a_crowd_that_was_not_forecast(
    small_cluster: Cluster, profiles: Profiles, blend: FloatArray
) -> None:
    few = poisson(5.0, 60.0, LogNormal(500, 1.0, 3000), LogNormal(150, 0.9, 800), seed=1)
    many = poisson(40.0, 120.0, LogNormal(500, 1.0, 3000), LogNormal(150, 0.9, 800), seed=2)
    load = Requests(
        np.concatenate([few.arrival_s, 60.0 + many.arrival_s]),
        np.concatenate([few.prompt_tokens, many.prompt_tokens]),
        np.concatenate([few.output_tokens, many.output_tokens]),
    )
    calm = slots(few, blend, 60.0)
    with_, without = (
        run(load, small_cluster, Dynamo(profiles, Demand(calm, 600.0), emergencies=each)) for each in (True, False)
    )
    assert without.attainment < 0.5
    assert with_.attainment > 0.7


def test_dynamo_takes_less_than_its_pools_at_full_speed(
    load: Requests, small_cluster: Cluster, profiles: Profiles, blend: FloatArray
) -> None:
    rates = slots(load, blend, THIRD_S)
    fixed = run(load, small_cluster, multi_pool(profiles, rates.max(axis=0)))
    dynamo = run(load, small_cluster, Dynamo(profiles, Demand(rates, THIRD_S)))
    assert dynamo.energy_j < fixed.energy_j


def test_the_best_static_plan_keeps_deadlines_and_no_instance_more(load: Requests, small_cluster: Cluster) -> None:
    part = load.part(0.0, THIRD_S)
    plan = best_static(lambda: [part], small_cluster, candidates=2)
    result = run(part, small_cluster, plan)
    assert not result.failed
    fewest = [each for each in plan.placed if each.count > 1]
    for each in fewest[:1]:
        fewer = tuple(type(one)(one.pool, one.layout, one.count - (one == each), one.setting) for one in plan.placed)
        assert run(part, small_cluster, type(plan)(plan.name, fewer, plan.pools)).failed


def test_gpu_hours_are_of_gpus_that_are_not_off(
    load: Requests, small_cluster: Cluster, profiles: Profiles, blend: FloatArray
) -> None:
    part = load.part(0.0, THIRD_S)
    plan = single_pool(profiles, slots(part, blend, THIRD_S)[0])
    served = simulate_cluster(part, small_cluster, plan, bin_s=10.0)
    result = result_of(served, part, small_cluster)
    count = sum(each.count for each in plan.placed)
    assert result.gpu_hours == pytest.approx(4 * count * served.end_s / 3600, rel=0.05)
    assert result.instances[2] == pytest.approx(count)
    assert result.power_w[0] == pytest.approx(served.total_energy_j / served.end_s, rel=0.1)
    assert served.timeline.gpus[:, InstanceState.PARKED].sum() == 0
