"""Which pools there are, what load is expected, and what it could take at least."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from testbed.cluster_loads import slot_estimate
from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.controllers.fixed import Fixed, Placed, all_on, steered
from wastenot.serving.cluster.demand import Demand
from wastenot.serving.cluster.frontiers import InstanceFrontier
from wastenot.serving.cluster.model import Cluster, ClusterView
from wastenot.serving.cluster.oracle import step_bound
from wastenot.serving.cluster.pools import PARTITIONS, planned
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.cluster.results import Work
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.requests import Requests
from wastenot.serving.policies.by_name import maker_of

RATE = np.array([1.0, 2.0, 0.5, 2.0, 3.0, 1.0, 3.0, 2.0, 1.0])


@pytest.fixture
def rate(blend: FloatArray) -> FloatArray:
    """As many requests a second as above, of classes as in the past."""
    return RATE.sum() * blend


def test_the_plan_is_the_cheapest_of_all_layouts_and_counts(profiles: Profiles, rate: FloatArray) -> None:
    upper, tried = 1.1 * rate, []
    for layout, engine in enumerate(profiles.cluster.layouts):
        for count in range(1, profiles.cluster.gpus // engine.gpus + 1):
            known = profiles.frontier(layout, rate, together=count, ladders=True)
            if count * known.capacity_per_s >= upper.sum():
                tried.append((count * float(known.power_at(rate.sum() / count)), layout, count))
    plan = planned(profiles, rate, upper, swing=(1.0,))
    assert (plan.power_w, plan.layout, plan.instances) == pytest.approx(min(tried))


def test_spare_gpus_that_draw_power_make_more_instances_cheap(profiles: Profiles, rate: FloatArray) -> None:
    gpus = [
        plan.instances * profiles.cluster.layouts[plan.layout].gpus
        for plan in (planned(profiles, rate, rate, spare_gpu_w=watts) for watts in (0.0, 300.0))
    ]
    assert gpus[1] > gpus[0]


def test_too_much_load_gets_what_there_is(profiles: Profiles, rate: FloatArray) -> None:
    plan = planned(profiles, 100 * rate, 100 * rate)
    cluster = profiles.cluster
    assert plan.instances * cluster.layouts[plan.layout].gpus == cluster.gpus
    takes = [
        cluster.gpus
        // engine.gpus
        * profiles.frontier(layout, rate, together=cluster.gpus // engine.gpus, ladders=True).capacity_per_s
        for layout, engine in enumerate(cluster.layouts)
    ]
    assert takes[plan.layout] == max(takes)


def test_with_all_on_every_gpu_serves_and_a_policy_of_its_own_changes_only_clocks(small_cluster: Cluster) -> None:
    plan = all_on(small_cluster, len(small_cluster.layouts) - 1)
    (placed,) = plan.placed
    gpus = small_cluster.layouts[placed.layout].gpus
    assert gpus == max(each.gpus for each in small_cluster.layouts)
    assert placed.count * gpus <= small_cluster.gpus < (placed.count + 1) * gpus
    (own,) = steered(plan, maker_of("by-metrics")).placed
    assert (own.pool, own.layout, own.count) == (placed.pool, placed.layout, placed.count) and own.clock != placed.clock


def test_deadlines_that_no_layout_keeps_are_refused(small_cluster: Cluster, past: Requests) -> None:
    hasty = replace(small_cluster, deadlines=Deadlines(ttft_s=(1e-4, 1e-4, 1e-4)))
    with pytest.raises(BadInputError, match="no layout meets the deadlines"):
        planned(Profiles(hasty, past, points=2), RATE, RATE)


def seen(now_s: float, arrivals: np.ndarray) -> ClusterView:
    none = np.zeros(0, dtype=np.intp)
    nobody = np.zeros(COUNT, dtype=np.intp)
    return ClusterView(now_s, *(none,) * 10, arrivals, nobody, np.zeros(COUNT), nobody, nobody, 0, nobody, nobody)


def test_a_forecast_is_scaled_by_what_came_of_it() -> None:
    demand = Demand(np.stack([RATE, 3 * RATE]), 1000.0)
    assert demand.peak(0.0, 10.0) == pytest.approx(RATE)
    assert demand.peak(0.0, 1001.0) == pytest.approx(3 * RATE)
    for visit in range(1, 41):
        demand.see(seen(5.0 * visit, 10 * RATE))  # twice as many as forecast
    assert demand.recent(60.0) == pytest.approx(2 * RATE)
    assert demand.peak(200.0, 300.0) == pytest.approx(2 * RATE)
    assert demand.peak(200.0, 1001.0) == pytest.approx(6 * RATE)
    assert Demand(RATE[None], follows=False).peak(0.0, 9.0) == pytest.approx(RATE)


def test_a_busy_minute_is_not_forgotten_at_once() -> None:
    demand = Demand(RATE[None])
    for visit in range(1, 101):
        demand.see(seen(5.0 * visit, (15 if 40 <= visit < 60 else 5) * RATE))
    assert demand.recent(60.0) == pytest.approx(RATE)
    assert demand.peak(500.0, 600.0) == pytest.approx(3 * RATE)
    for visit in range(101, 300):
        demand.see(seen(5.0 * visit, 5 * RATE))
    assert demand.peak(1500.0, 1600.0) == pytest.approx(RATE)


@pytest.mark.parametrize("layout", [0, 1, 2])
@pytest.mark.parametrize("setting", [0, 1, 2])
def test_no_run_needs_less_than_the_bound(small_cluster: Cluster, layout: int, setting: int) -> None:
    load = poisson(12.0, 120.0, LogNormal(500, 1.0, 3000), LogNormal(150, 0.9, 800), seed=31)
    count = 16 // small_cluster.layouts[layout].gpus
    plan = Fixed("", (Placed(0, layout, count, setting),), ((0,),) * COUNT)
    generous = replace(small_cluster, deadlines=Deadlines(ttft_s=(9.0, 9.0, 9.0), tbt_s=9.0))
    served, work = simulate_cluster(load, generous, plan), Work.of(load)
    assert small_cluster.gpus == 16  # all are on
    assert served.total_energy_j > step_bound(work, generous, on_s=served.end_s) > step_bound(work, generous)


def test_the_bound_rises_with_tighter_deadlines_and_more_load(small_cluster: Cluster) -> None:
    load = poisson(5.0, 120.0, LogNormal(500, 1.0, 3000), LogNormal(150, 0.9, 800), seed=31)
    generous = replace(small_cluster, deadlines=Deadlines(tbt_s=9.0))
    hasty = replace(small_cluster, deadlines=Deadlines(tbt_s=0.02))
    assert step_bound(Work.of(load), generous) < step_bound(Work.of(load), hasty)
    assert step_bound(Work.of(load.part(0.0, 60.0)), small_cluster) < step_bound(Work.of(load), small_cluster)
    nothing = Work.of(load.part(0.0, 0.0))
    assert step_bound(nothing, small_cluster) == 0.0
    idle_w = small_cluster.gpus * small_cluster.layouts[0].idle_gpu_w
    assert step_bound(nothing, small_cluster, on_s=10.0) == pytest.approx(10.0 * idle_w)


@pytest.mark.slow
def test_the_estimate_is_of_the_cheapest_rate_in_each_slot(profiles: Profiles, rate: FloatArray) -> None:
    some = PARTITIONS[:2]  # classes in one pool, and long prompts in a pool of their own
    once = slot_estimate(profiles, 60 * rate[None], partitions=some)
    assert once == min(slot_estimate(profiles, 60 * rate[None], partitions=(each,)) for each in some)
    thrice = np.stack([60 * rate, np.zeros(COUNT), 120 * rate])
    assert slot_estimate(profiles, thrice, partitions=some) == pytest.approx(3 * once)
    assert once < 60 * planned(profiles, rate, rate).power_w


def test_the_estimate_is_above_the_bound(profiles: Profiles, past: Requests, blend: FloatArray) -> None:
    estimate_j = slot_estimate(profiles, len(past) * blend[None], partitions=PARTITIONS[:1])
    assert estimate_j > step_bound(Work.of(past), profiles.cluster)


def test_a_load_that_one_layout_cannot_take_counts_for_none(small_cluster: Cluster, past: Requests) -> None:
    """One GPU takes a request a second for 100 W; two together take half as many for 101 W."""

    class Known(Profiles):
        def frontier(self, layout: int, rate_per_s: FloatArray, **_: object) -> InstanceFrontier:
            engine, capacity = self.cluster.layouts[layout], 1.0 if layout == 0 else 0.5
            engine = replace(engine, tables=replace(engine.tables, idle_power_w=0.0 * engine.tables.idle_power_w))
            one = np.ones(1)
            return InstanceFrontier(
                engine, self.mix(rate_per_s), capacity * one, np.zeros(1, int), (100.0 + layout) * one, one
            )

    known = Known(replace(small_cluster, layouts=small_cluster.layouts[:2]), past)
    rate = np.full(COUNT, 3.0 / COUNT)
    assert planned(known, rate, rate, swing=(0.5, 1.0)).layout == 0
    assert planned(known, rate, rate, swing=(0.5, 1.0, 4.0)).layout == 0  # of 12 requests a second two GPUs each take 4
