"""Instances that come, change, go and fail: what they cost, and that no request is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from testbed.random_clusters import Scripted, Whims
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.classes import COUNT, class_of
from wastenot.serving.cluster.model import (
    Action,
    ClockRule,
    Cluster,
    ClusterServed,
    ClusterView,
    Failure,
    InstanceState,
    Park,
    Reshard,
    Route,
    Router,
    SetClock,
    Start,
    Stop,
    Wake,
)
from wastenot.serving.cluster.simulation.simulate import Answers, ClusterRun, simulate_cluster
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine_tables import OutsideProfileError
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.requests import Requests

ROUTERS = tuple(Router)
_PROMPT, _OUTPUT = LogNormal(300, 1.0, 2000), LogNormal(60, 0.9, 400)


def load(rate_per_s: float, duration_s: float, seed: int = 0) -> Requests:
    return poisson(rate_per_s, duration_s, _PROMPT, _OUTPUT, seed=seed)


def at(*plan: tuple[float, Action]) -> Callable[[ClusterView], Sequence[Action]]:
    """Actions at times, by a controller that visits each second."""
    return lambda view: [action for at_s, action in plan if view.now_s == at_s]


def states(controller: Scripted, instance: int) -> list[tuple[float, str]]:
    """When visits found an instance in another state."""
    seen: list[tuple[float, str]] = []
    for view in controller.seen:
        if instance < len(view.state):
            name = InstanceState(view.state[instance]).name
            if not seen or seen[-1][1] != name:
                seen.append((view.now_s, name))
    return seen


def whimsical(seed: int, cluster: Cluster) -> tuple[Requests, Cluster, ClusterServed]:
    """A run in which everything happens."""
    changes = replace(
        cluster.changes, start_s=(2.0, 3.0, 4.0), reshard_s=1.5, wake_s=0.3, off_power_w=5.0, host_power_w=50.0
    )
    cluster, requests = replace(cluster, changes=changes), load(8.0, 40.0, seed)
    failures = (Failure(seed % 4, 12.0, 20.0), Failure((seed + 1) % 4, 15.3 + seed / 100))
    run = simulate_cluster(
        requests, cluster, Whims(seed, cluster), router=ROUTERS[seed % 4], failures=failures, seed=seed, bin_s=0.7
    )
    return requests, cluster, run


@pytest.mark.parametrize("tens", [0, 1, *(pytest.param(more, marks=pytest.mark.slow) for more in range(2, 6))])
def test_whatever_happens_nothing_is_lost(tens: int, small_cluster: Cluster) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        requests, cluster, run = whimsical(seed, small_cluster)
        answered = run.instance >= 0
        assert (np.isfinite(run.finish_s) == answered).all()
        assert (run.first_token_s[answered] > requests.arrival_s[answered]).all()
        one = answered & (requests.output_tokens == 1)
        np.testing.assert_array_equal(run.first_token_s[one], run.finish_s[one])
        assert answered.all() or run.end_s > 3600.0  # only where nobody serves for an hour
        if answered.all():  # all tokens but the first of each request came after another one
            assert run.gap_counts.sum() == (requests.output_tokens - 1).sum()
        line = run.timeline
        assert line.energy_j.sum() == pytest.approx(run.total_energy_j, rel=1e-9)
        assert (line.energy_j >= 0).all()
        width = np.minimum(line.bin_s, run.end_s - line.bin_s * np.arange(len(line.energy_j)))
        np.testing.assert_allclose(line.gpus.sum(axis=1), cluster.gpus, rtol=1e-6)
        assert (line.gpus > -1e-9).all()
        assert line.arrivals.sum() == len(requests)
        power = cluster.changes
        state_s = (line.gpus * width[:, None]).sum(axis=0)
        assert run.energy_j["parked"] == pytest.approx(power.parked_power_w * state_s[InstanceState.PARKED], abs=1e-6)
        assert run.energy_j["off"] == pytest.approx(power.off_power_w * state_s[InstanceState.OFF], rel=1e-9)
        by_layout = [engine.gpus for engine in cluster.layouts] * line.instances
        np.testing.assert_allclose(by_layout.sum(axis=1), line.gpus[:, InstanceState.SERVING], atol=1e-9)


def test_whims_do_everything(small_cluster: Cluster) -> None:
    done: dict[str, int] = {}
    rerouted = 0
    for seed in range(0, 60, 5):
        log = whimsical(seed, small_cluster)[2].log
        for each in log:
            name = type(each.action).__name__ + (" refused" if each.refused else "")
            done[name] = done.get(name, 0) + 1
            rerouted += each.rerouted
    for name in ("Start", "Stop", "Park", "Wake", "Reshard", "Assign", "SetClock", "Route", "Failure"):
        assert done[name] >= 5, name
    assert rerouted > 20
    assert done["Start refused"] and done["Reshard refused"] and done["SetClock refused"]


def test_the_same_seed_gives_the_same_bytes(small_cluster: Cluster) -> None:
    for seed in range(2):
        one, other = (whimsical(seed, small_cluster)[2] for _ in range(2))
        for name in ("instance", "first_token_s", "finish_s", "late_tokens", "gap_counts"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
        assert one.energy_j == other.energy_j
        assert one.timeline.energy_j.tobytes() == other.timeline.energy_j.tobytes()
        assert [(each.at_s, each.refused) for each in one.log] == [(each.at_s, each.refused) for each in other.log]


@pytest.mark.parametrize("router", ROUTERS)
def test_the_order_in_which_instances_begin_changes_nothing_but_their_numbers(
    router: Router, small_cluster: Cluster
) -> None:
    """Instances of a pool and a layout have the same clock here: which of several idle ones a request gets is a tie."""
    requests = load(30.0, 60.0)
    starts: list[Action] = [Start(0, 0)] * 3 + [Start(1, 0)] * 2 + [Start(0, 1)] * 3 + [Start(2, 1)]
    route = Route(tuple((kind % 2,) for kind in range(COUNT)))
    runs = []
    for order in (range(9), (8, 3, 7, 0, 4, 1, 6, 2, 5)):
        controller = Scripted([*(starts[each] for each in order), route])
        runs.append(simulate_cluster(requests, small_cluster, controller, router=router, seed=5))
    one, other = runs
    assert not np.array_equal(one.instance, other.instance)
    for name in ("first_token_s", "finish_s", "late_tokens", "gap_counts"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    for kind, energy_j in one.energy_j.items():
        assert other.energy_j[kind] == pytest.approx(energy_j, rel=1e-12)


def test_an_instance_starts_serves_drains_parks_and_wakes(small_cluster: Cluster) -> None:
    changes = replace(small_cluster.changes, start_s=(3.5, 3.5, 3.5), wake_s=1.2)
    cluster = replace(small_cluster, changes=changes)
    plan = at((1.0, Start(1, 0)), (10.0, Park(1)), (20.0, Wake(1)), (30.0, Stop(1)))
    controller = Scripted([Start(2, 0)], then=plan)
    requests = load(20.0, 40.0)
    run = simulate_cluster(requests, cluster, controller)
    seen = states(controller, 1)
    assert [name for _, name in seen if name != "DRAINING"] == ["STARTING", "SERVING", "PARKED", "WAKING", "SERVING", "OFF"]
    by_name = {name: at_s for at_s, name in seen[:4]}
    assert by_name["STARTING"] == 2.0 and by_name["SERVING"] == 5.0  # from 4.5 s on
    second = run.instance == 1
    assert (requests.arrival_s[second] > 4.5).all()
    away = (requests.arrival_s > 10.0) & (requests.arrival_s < 21.2)
    assert not (second & (away | (requests.arrival_s > 30.0))).any()
    assert second.sum() > 50
    assert run.energy_j["changing"] == pytest.approx(changes.start_power_w * 2 * (3.5 + 1.2))
    assert run.energy_j["parked"] > 0


def test_instances_are_resharded_together(small_cluster: Cluster) -> None:
    plan = at((5.0, Reshard((0, 1), (2,), 0)))
    controller = Scripted([Start(1, 0), Start(1, 0), Start(2, 1)], then=plan)
    requests = load(20.0, 40.0)
    run = simulate_cluster(requests, small_cluster, controller)
    both = (run.instance == 0) | (run.instance == 1)
    drained_s = float(run.finish_s[both].max())
    assert drained_s > 5.0
    assert run.energy_j["changing"] == pytest.approx(120.0 * 4 * 3.0)
    new = run.instance == 3
    assert new.sum() > 100
    assert requests.arrival_s[new].min() >= drained_s + 3.0
    assert controller.seen[-1].layout.tolist() == [1, 1, 2, 2]
    assert controller.seen[-1].host[3] == controller.seen[-1].host[0]


def test_a_failed_host_loses_no_request_and_no_token(small_cluster: Cluster) -> None:
    controller = Scripted([Start(2, 0), Start(2, 0)])
    requests = load(20.0, 30.0)
    calm = simulate_cluster(requests, small_cluster, controller)
    run = simulate_cluster(requests, small_cluster, controller, failures=(Failure(0, 10.01, 20.0),))
    (failed,) = (each for each in run.log if isinstance(each.action, Failure))
    moved = (calm.instance == 0) & (calm.finish_s > 10.01) & (requests.arrival_s < 10.01)
    assert failed.rerouted == moved.sum() > 0
    assert np.isfinite(run.finish_s).all()
    assert (run.instance[moved] == 1).all()
    had = moved & (calm.first_token_s < 10.0)
    assert had.any()
    np.testing.assert_array_equal(run.first_token_s[had], calm.first_token_s[had])
    assert run.gap_counts.sum() == (requests.output_tokens - 1).sum()
    before = requests.arrival_s + 20.0 < 10.0
    np.testing.assert_array_equal(run.finish_s[before], calm.finish_s[before])


def test_requests_that_nobody_can_take_wait_at_the_router(small_cluster: Cluster) -> None:
    controller = Scripted([], then=at((7.0, Start(2, 0))))
    requests = load(3.0, 5.0)
    run = simulate_cluster(requests, small_cluster, controller)
    assert controller.seen[5].unplaced == len(requests)
    assert (run.first_token_s > 67.0).all()
    assert (np.diff(run.first_token_s) >= 0).all()


def test_requests_that_nobody_ever_takes_are_given_up_and_said_so(small_cluster: Cluster) -> None:
    requests = load(3.0, 5.0)
    run = simulate_cluster(requests, small_cluster, Scripted([], period_s=60.0))
    assert (run.instance == -1).all()
    assert np.isnan(run.finish_s).all()
    assert run.timeline.missed.sum() == len(requests)


def test_a_request_goes_where_the_cache_can_hold_it(small_cluster: Cluster) -> None:
    layouts = (replace(small_cluster.layouts[0], cache_blocks=30), *small_cluster.layouts[1:])
    cluster = replace(small_cluster, layouts=layouts)
    requests = load(10.0, 20.0)
    run = simulate_cluster(requests, cluster, Scripted([Start(0, 0)] * 4 + [Start(1, 0)]))
    long = -(-(requests.prompt_tokens + requests.output_tokens) // 16) > 30
    assert 0 < long.sum() < len(requests)
    assert (run.instance[long] == 4).all()
    assert len(set(run.instance[~long].tolist())) == 5


def test_a_controller_sees_what_came_and_what_is_there(small_cluster: Cluster) -> None:
    requests = load(20.0, 30.0)
    controller = Scripted([Start(2, 0), Start(1, 0)], period_s=2.5)
    predicted = np.full(len(requests), 120.0)
    run = simulate_cluster(requests, small_cluster, controller, predicted_tokens=predicted)
    classes = class_of(requests.prompt_tokens, predicted)
    for before, view in zip([None, *controller.seen], controller.seen, strict=False):
        since_s = before.now_s if before else -1.0
        came = (requests.arrival_s > since_s) & (requests.arrival_s <= view.now_s)
        assert view.arrivals.tolist() == np.bincount(classes[came], minlength=COUNT).tolist()
        assert view.arrived_prompt_tokens.sum() == requests.prompt_tokens[came].sum()
        assert view.arrived_output_tokens.sum() == pytest.approx(120.0 * came.sum())
        there = (requests.arrival_s <= view.now_s) & (run.finish_s > view.now_s)
        decoding = there & (run.first_token_s <= view.now_s)
        for instance in range(2):
            mine = run.instance == instance
            assert view.running[instance] == (mine & decoding).sum()
            assert view.running[instance] + view.waiting[instance] == (mine & there).sum()
        gone = (run.finish_s > since_s) & (run.finish_s <= view.now_s)
        assert view.finished.sum() == gone.sum()
    assert sum(int(view.missed.sum()) for view in controller.seen) <= run.timeline.missed.sum()


def test_tokens_in_the_cache_are_seen_in_the_middle_of_a_stretch(small_cluster: Cluster) -> None:
    requests = Requests(np.zeros(1), np.array([50]), np.array([400]))
    controller = Scripted([Start(0, 0)], period_s=0.21)
    run = simulate_cluster(requests, small_cluster, controller)
    made = [int(view.context[0]) - 50 for view in controller.seen]
    assert len(made) > 10
    step_s = (run.finish_s[0] - run.first_token_s[0]) / 399
    expected = [(view.now_s - run.first_token_s[0]) / step_s for view in controller.seen]
    np.testing.assert_allclose(made, expected, atol=4.0)
    assert all(one < other for one, other in pairwise(made))


def test_a_clock_rule_that_is_set_counts_from_the_next_step_on(small_cluster: Cluster) -> None:
    requests, engine = Requests(np.zeros(1), np.array([50]), np.array([400])), small_cluster.layouts[0]
    slow = SetClock(0, ClockRule.fixed(0, engine))
    fast = simulate_cluster(requests, small_cluster, Scripted([Start(0, 0)]))
    half = simulate_cluster(requests, small_cluster, Scripted([Start(0, 0)], then=at((2.0, slow))))
    slowest = simulate_cluster(requests, small_cluster, Scripted([Start(0, 0, slow.clock)]))
    assert fast.switches == slowest.switches == 0
    assert half.switches == 1
    assert fast.finish_s[0] < half.finish_s[0] < slowest.finish_s[0]
    share = (slowest.finish_s[0] - half.finish_s[0]) / (slowest.finish_s[0] - fast.finish_s[0])
    assert share == pytest.approx(2.02 / fast.finish_s[0], abs=0.02)


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (Start(2, 0), "no host has 4 free GPUs"),
        (Start(7, 0), "there is no layout 7"),
        (Start(0, -1), "there can be no pool -1"),
        (Start(0, 0, ClockRule(np.zeros(3, dtype=np.intp), 0)), "a clock rule for batches up to 2; layout 0 has 64"),
        (Start(0, 0, ClockRule(np.zeros(65, dtype=np.intp), 9)), "an unknown setting; settings are 0 to 2"),
        (Stop(9), "there is no instance 9"),
        (Wake(0), "instance 0 is serving"),
        (Reshard((0, 1), (0,), 0), "instances of several hosts"),
        (Reshard((0,), (2, 0), 0), "5 GPUs are requested from instances that have 4"),
        (Reshard((0, 0), (0,), 0), "each at most once"),
        (Route(((0,),)), "routes for 1 classes"),
        (Route(((0,),) * COUNT, hold=(0,)), "hold before the first token of a prompt waits"),
    ],
)
def test_what_cannot_be_done_is_refused_and_logged(action: Action, why: str, small_cluster: Cluster) -> None:
    full = [Start(2, 0)] * 4
    run = simulate_cluster(load(5.0, 3.0), small_cluster, Scripted(full, then=at((1.0, action))))
    (logged,) = (each for each in run.log if each.at_s == 1.0)
    assert why in logged.refused
    assert logged.action is action
    assert np.isfinite(run.finish_s).all()


def test_what_makes_no_run_is_said_so(small_cluster: Cluster) -> None:
    requests, controller = load(5.0, 3.0), Scripted([Start(0, 0)])
    with pytest.raises(BadInputError, match="bin_s"):
        simulate_cluster(requests, small_cluster, controller, bin_s=0.0)
    with pytest.raises(BadInputError, match="period_s of 'scripted'"):
        simulate_cluster(requests, small_cluster, Scripted([], period_s=0.0))
    with pytest.raises(BadInputError, match="host 4 cannot fail"):
        simulate_cluster(requests, small_cluster, controller, failures=(Failure(4, 1.0),))
    with pytest.raises(BadInputError, match="back after it has failed"):
        simulate_cluster(requests, small_cluster, controller, failures=(Failure(0, 5.0, 1.0),))
    large = Requests(np.zeros(1), np.array([10**6]), np.array([1]))
    with pytest.raises(BadInputError, match=r"request 1: 1000000 \+ 1 tokens do not fit into the cache of"):
        simulate_cluster(large, small_cluster, controller)
    with pytest.raises(OutsideProfileError, match="4608 tokens before them is outside the profile"):
        simulate_cluster(Requests(np.zeros(1), np.array([9000]), np.array([5])), small_cluster, controller)


def test_the_router_sends_requests_where_they_add_least_energy(small_cluster: Cluster) -> None:
    """A batch on one GPU costs less than one on four, and several requests together less than each alone."""
    requests = load(2.0, 60.0)
    controller = Scripted([Start(2, 0), Start(0, 0), Start(0, 0)])
    runs = {
        router: simulate_cluster(requests, small_cluster, controller, router=router)
        for router in (Router.LEAST_REQUESTS, Router.LEAST_ENERGY)
    }
    spread, packed = (runs[router].instance for router in (Router.LEAST_REQUESTS, Router.LEAST_ENERGY))
    assert (packed == 0).mean() < 0.5 * (spread == 0).mean()
    made = {router: sum(run.energy_j[kind] for kind in ("prefill", "decode", "mixed")) for router, run in runs.items()}
    assert made[Router.LEAST_ENERGY] < 0.9 * made[Router.LEAST_REQUESTS]


def test_where_deadlines_are_at_stake_least_energy_spreads_requests(small_cluster: Cluster) -> None:
    at_once = Requests(np.zeros(60), np.full(60, 200), np.full(60, 20))
    run = simulate_cluster(at_once, small_cluster, Scripted([Start(0, 0)] * 4), router=Router.LEAST_ENERGY)
    assert len(set(run.instance.tolist())) > 1
    assert (run.first_token_s <= 0.3).mean() > 0.9


@pytest.mark.parametrize("cuts", [(), (100,), (0, 3, 200, 200, 220, 500)])
def test_requests_that_come_in_parts_are_answered_as_at_once(cuts: tuple[int, ...], small_cluster: Cluster) -> None:
    requests, small_cluster = load(20.0, 40.0), replace(small_cluster, deadlines=Deadlines(ttft_s=(0.03, 0.05, 0.1)))
    controller = Scripted([Start(2, 0), Start(0, 0)], then=at((3.0, Start(1, 0)), (20.0, Stop(1))))
    predicted = 1.3 * requests.output_tokens
    whole = simulate_cluster(
        requests, small_cluster, controller, router=Router.LEAST_TOKENS, predicted_tokens=predicted, bin_s=0.9
    )
    edges = (0, *cuts, len(requests))
    parts = [
        Requests(*(getattr(requests, name)[one:other] for name in ("arrival_s", "prompt_tokens", "output_tokens")))
        for one, other in pairwise(edges)
    ]
    answered: list[tuple[Requests, Answers]] = []
    run = ClusterRun(
        parts,
        small_cluster,
        controller,
        lambda *both: answered.append(both),
        router=Router.LEAST_TOKENS,
        predict=lambda part: 1.3 * part.output_tokens,
        bin_s=0.9,
    ).served()
    assert [part for part, _ in answered] == [part for part in parts if len(part)]
    for name in Answers._fields:
        together = np.concatenate([getattr(answers, name) for _, answers in answered])
        np.testing.assert_array_equal(together, getattr(whole, name))
        assert len(getattr(run, name)) == 0
    assert run.energy_j == whole.energy_j
    for name in ("energy_j", "gpus", "clock_mhz", "arrivals", "missed"):
        np.testing.assert_array_equal(getattr(run.timeline, name), getattr(whole.timeline, name))
    assert whole.timeline.missed.sum() > 0


def test_parts_that_are_answered_go_before_the_next_ones_come(small_cluster: Cluster) -> None:
    events: list[str] = []

    def parts() -> Iterator[Requests]:
        for hour in range(5):
            events.append("comes")
            yield Requests(np.array([0.0, 1.0]) + 100.0 * hour, np.full(2, 100), np.full(2, 50))

    ClusterRun(parts(), small_cluster, Scripted([Start(0, 0)]), lambda *_: events.append("goes")).served()
    assert events == ["comes", *(["comes", "goes"] * 4), "goes"]


def test_parts_out_of_order_are_refused(small_cluster: Cluster) -> None:
    late, early = (Requests(np.array([at_s]), np.array([9]), np.array([9])) for at_s in (5.0, 4.0))
    with pytest.raises(BadInputError, match="begins before the previous one ends"):
        ClusterRun([late, early], small_cluster, Scripted([Start(0, 0)]), lambda *_: None).served()


@pytest.mark.parametrize("router", ROUTERS[:3])
def test_one_more_instance_never_makes_requests_wait_longer(router: Router, small_cluster: Cluster) -> None:
    requests, waits = load(60.0, 60.0, 3), []
    for count in range(3, 9):
        run = simulate_cluster(requests, small_cluster, Scripted([Start(0, 0)] * count), router=router)
        waits.append(float(np.quantile(run.first_token_s - requests.arrival_s, 0.99)))
    assert all(more <= 1.1 * fewer for fewer, more in pairwise(waits))
    assert waits[-1] < 0.8 * waits[0]


def test_no_requests_take_no_time(small_cluster: Cluster) -> None:
    none = Requests(np.array([]), np.array([], dtype=np.intp), np.array([], dtype=np.intp))
    run = simulate_cluster(none, small_cluster, Scripted([Start(0, 0)]))
    assert run.end_s == run.total_energy_j == 0.0


def test_cached_tokens_are_not_prefilled_but_take_their_place(small_cluster: Cluster) -> None:
    engine, last = small_cluster.layouts[0], len(small_cluster.layouts[0].tables.settings) - 1
    one = Requests(np.zeros(1), np.array([400]), np.array([30]), np.array([300]))
    run = simulate_cluster(one, small_cluster, Scripted([Start(0, 0)]))
    prefill = engine.tables.prefill(last, 100.0, 300.0)  # the rest of the prompt, after what is cached
    assert run.first_token_s[0] == pytest.approx(prefill.time_s + engine.overhead_s, rel=1e-9)
    assert run.energy_j["prefill"] == pytest.approx(prefill.energy_j, rel=1e-9)
    whole = simulate_cluster(replace(one, cached_tokens=None), small_cluster, Scripted([Start(0, 0)]))
    decode_s = [each.finish_s[0] - each.first_token_s[0] for each in (run, whole)]
    assert decode_s[0] == pytest.approx(decode_s[1], rel=1e-9)  # tokens attend to the whole prompt
