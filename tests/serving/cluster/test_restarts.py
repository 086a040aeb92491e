"""Instances that a failed host takes along are started again, by every controller."""

from __future__ import annotations

import numpy as np
import pytest

from wastenot.core.arrays import FloatArray
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.controllers.dynamo import Dynamo
from wastenot.serving.cluster.controllers.fixed import Fixed, Placed
from wastenot.serving.cluster.controllers.parking import Parking
from wastenot.serving.cluster.demand import Demand
from wastenot.serving.cluster.model import Cluster, ClusterServed, Failure, Start
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.requests import Requests

ANYWHERE = ((0, 1),) * COUNT


@pytest.fixture
def load() -> Requests:
    return poisson(6.0, 300.0, LogNormal(400, 1.0, 3000), LogNormal(80, 0.9, 500), seed=3)


def restarts(served: ClusterServed) -> list[tuple[float, Start]]:
    assert not [each for each in served.log if each.refused]
    return [(each.at_s, each.action) for each in served.log if isinstance(each.action, Start) and each.at_s > 0]


def test_a_plan_starts_what_failed_elsewhere(small_cluster: Cluster, load: Requests) -> None:
    plan = Fixed("plan", (Placed(0, 2, 1), Placed(1, 1, 2, setting=1)), ANYWHERE)
    served = simulate_cluster(load, small_cluster, plan, failures=(Failure(1, 51.0), Failure(0, 152.0)))
    again = restarts(served)
    assert [at_s for at_s, _ in again] == [55.0, 55.0, 155.0]
    assert [(each.layout, each.pool) for _, each in again] == [(1, 1), (1, 1), (2, 0)]
    clocks = [each.clock.by_batch.max() for _, each in again if each.clock is not None]
    assert clocks == [1, 1, 2]
    assert np.isfinite(served.finish_s).all()
    assert (served.instance[load.arrival_s > 115.1] >= 0).all()
    assert set(served.instance[(load.arrival_s > 160.0) & (load.arrival_s < 210.0)].tolist()) == {3, 4}
    assert 5 in served.instance[load.arrival_s > 216.0]


def test_a_plan_that_takes_all_hosts_waits_for_the_one_that_failed(small_cluster: Cluster, load: Requests) -> None:
    plan = Fixed("plan", (Placed(0, 2, 4),), ((0,),) * COUNT)
    served = simulate_cluster(load, small_cluster, plan, failures=(Failure(2, 51.0, 99.0),))
    assert [(at_s, each.layout) for at_s, each in restarts(served)] == [(100.0, 2)]
    assert 4 in served.instance


def test_nothing_is_started_where_nothing_fails(small_cluster: Cluster, load: Requests) -> None:
    served = simulate_cluster(load, small_cluster, Fixed("plan", (Placed(0, 2, 5),), ((0,),) * COUNT))
    assert [each.refused for each in served.log if each.refused] == ["no host has 4 free GPUs"]
    assert not [each for each in served.log if each.at_s > 0]


@pytest.mark.parametrize("knob", ["instances", "clocks"])
def test_dynamo_starts_units_that_failed(small_cluster: Cluster, load: Requests, profiles: Profiles, knob: str) -> None:
    rates: FloatArray = np.full((1, COUNT), 20.0 / COUNT)
    alone = knob == "instances"
    controller = Dynamo(profiles, Demand(rates), instances=alone, shards=False, clocks=not alone)
    served = simulate_cluster(load, small_cluster, controller, failures=(Failure(0, 51.0, 99.0), Failure(1, 201.0)))
    again = restarts(served)
    assert {each.layout for _, each in again} == {2}
    assert [at_s for at_s, _ in again] == [55.0, 205.0]
    assert np.isfinite(served.finish_s).all()


def test_ours_replaces_what_failed_when_there_is_room(small_cluster: Cluster, profiles: Profiles, blend: FloatArray) -> None:
    load = poisson(40.0, 300.0, LogNormal(400, 1.0, 3000), LogNormal(80, 0.9, 500), seed=3)
    controller = Parking(profiles, Demand(40.0 * blend[None]))
    served = simulate_cluster(load, small_cluster, controller, failures=(Failure(0, 51.0, 99.0),))
    again = restarts(served)
    assert again[0][0] in (55.0, 100.0)
    assert np.isfinite(served.finish_s).all()


def test_ours_waits_for_a_host_where_all_are_needed(small_cluster: Cluster, profiles: Profiles, blend: FloatArray) -> None:
    load = poisson(40.0, 200.0, LogNormal(400, 1.0, 3000), LogNormal(80, 0.9, 500), seed=3)
    full = Demand(1e4 * blend[None], follows=False)
    controller = Parking(profiles, full)
    served = simulate_cluster(load, small_cluster, controller, failures=(Failure(0, 51.0, 99.0),))
    again = restarts(served)
    gpus = sum(small_cluster.layouts[each.layout].gpus for _, each in again)
    assert {at_s for at_s, _ in again} == {100.0}
    assert gpus == small_cluster.gpus_per_host


def test_ours_starts_for_a_crowd_within_seconds_and_is_back_when_they_serve(
    small_cluster: Cluster, profiles: Profiles, blend: FloatArray
) -> None:
    few = poisson(20.0, 400.0, LogNormal(400, 1.0, 3000), LogNormal(80, 0.9, 500), seed=3)
    many = poisson(100.0, 200.0, LogNormal(400, 1.0, 3000), LogNormal(80, 0.9, 500), seed=4)
    arrival = np.concatenate([few.arrival_s, 150.0 + many.arrival_s])
    order = np.argsort(arrival)
    prompt, output = (
        np.concatenate([getattr(each, name) for each in (few, many)]) for name in ("prompt_tokens", "output_tokens")
    )
    load = Requests(arrival[order], prompt[order], output[order])
    controller = Parking(profiles, Demand(np.repeat(20.0 * blend[None], 2, axis=0), 300.0))  # no crowd is forecast
    served = simulate_cluster(load, small_cluster, controller)
    asked = [at_s for at_s, _ in restarts(served)]
    assert 150.0 < min(asked) <= 170.0
    good = small_cluster.deadlines.kept(load, served)
    assert good[load.arrival_s < 150.0].mean() > 0.99
    crowded = (load.arrival_s > 155.0) & (load.arrival_s < 200.0)
    assert good[crowded].mean() < 0.9
    assert good[(load.arrival_s > 250.0) & (load.arrival_s < 350.0)].mean() > 0.99
    assert np.isfinite(served.finish_s).all()
