"""Requests that are held at the router while instances have enough: who goes first, and who is late."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from testbed.random_clusters import Scripted, Whims, drawn_cluster, run_of
from wastenot.serving.cluster.classes import COUNT, class_of
from wastenot.serving.cluster.model import (
    Cluster,
    ClusterServed,
    ClusterView,
    Failure,
    Route,
    Router,
    Start,
)
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.model.engine import Scheduler
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.requests import Requests

_PROMPT, _OUTPUT = LogNormal(500, 1.0, 3000), LogNormal(60, 0.9, 400)
ONE_POOL = ((0,),) * COUNT
HOLD = 1024


def crowd(seed: int = 0) -> Requests:
    """Two minutes, of which half a minute brings far more than two instances can take."""
    calm = poisson(8.0, 120.0, _PROMPT, _OUTPUT, seed=seed)
    many = poisson(60.0, 30.0, _PROMPT, _OUTPUT, seed=seed + 1)
    order = np.argsort(arrival := np.concatenate([calm.arrival_s, 20.0 + many.arrival_s]), kind="stable")
    prompt, output = (
        np.concatenate([getattr(each, name) for each in (calm, many)]) for name in ("prompt_tokens", "output_tokens")
    )
    return Requests(arrival[order], prompt[order], output[order])


def run(
    requests: Requests, cluster: Cluster, route: Route, *, router: Router = Router.LEAST_REQUESTS
) -> tuple[ClusterServed, list[ClusterView]]:
    controller = Scripted([Start(0, 0), Start(0, 0), route])
    return simulate_cluster(requests, cluster, controller, router=router), controller.seen


def due_s(requests: Requests, cluster: Cluster) -> np.ndarray:
    return np.asarray(requests.arrival_s + cluster.deadlines.ttft_of(requests.prompt_tokens))


def test_deadlines_are_kept_again_as_soon_as_the_crowd_is_gone(small_cluster: Cluster) -> None:
    requests = crowd()
    afterwards = (requests.arrival_s > 51.0) & (requests.arrival_s < 70.0)
    shares = []
    for hold in ((), (HOLD,)):
        served, _ = run(requests, small_cluster, Route(ONE_POOL, hold=hold))
        assert np.isfinite(served.finish_s).all()
        shares.append(small_cluster.deadlines.kept(requests, served)[afterwards].mean())
    assert shares[0] < 0.5
    assert shares[1] > 0.98


@pytest.mark.parametrize("scheduler", Scheduler)
@pytest.mark.parametrize("router", Router)
def test_in_time_ones_go_by_deadline_and_late_ones_after_them(
    small_cluster: Cluster, router: Router, scheduler: Scheduler
) -> None:
    requests = crowd(3)
    cluster = replace(small_cluster, layouts=tuple(replace(each, scheduler=scheduler) for each in small_cluster.layouts))
    served, _ = run(requests, cluster, Route(ONE_POOL, hold=(HOLD,)), router=router)
    due, held = due_s(requests, small_cluster), served.sent_s > requests.arrival_s
    good = held & (served.first_token_s <= due)
    late = np.flatnonzero(held & (served.sent_s > due))
    assert good.sum() > 100 and len(late) > 100
    for each in late.tolist():  # nobody who still made it waited meanwhile
        assert not (good & (requests.arrival_s < served.sent_s[each]) & (served.sent_s > served.sent_s[each])).any()
    for each in np.flatnonzero(good).tolist():  # nor one that was due earlier
        waited = good & (requests.arrival_s < served.sent_s[each]) & (served.sent_s > served.sent_s[each])
        assert not (waited & (due < due[each] - 1e-9)).any()


@pytest.mark.parametrize("router", Router)
def test_no_instance_has_more_waiting_than_it_may(small_cluster: Cluster, router: Router) -> None:
    requests = crowd(5)
    served, seen = run(requests, small_cluster, Route(ONE_POOL, hold=(HOLD,)), router=router)
    free, crowded = (run(requests, small_cluster, Route(ONE_POOL), router=router)[1], seen)
    assert max(int(view.waiting_tokens.max()) for view in free) > 20 * HOLD
    assert max(int(view.waiting_tokens.max()) for view in crowded) < HOLD + requests.prompt_tokens.max()
    # Wherever requests are held, all have as much as they may.
    assert all((view.waiting_tokens >= HOLD).all() for view in crowded if view.unplaced)
    assert sum(view.unplaced > 0 for view in crowded) > 20
    assert np.isfinite(served.finish_s).all()


def test_a_controller_sees_what_is_held(small_cluster: Cluster) -> None:
    requests = crowd(7)
    served, seen = run(requests, small_cluster, Route(ONE_POOL, hold=(HOLD,)))
    number, due = class_of(requests.prompt_tokens, requests.output_tokens), due_s(requests, small_cluster)
    some = 0
    for view in seen:
        held = (requests.arrival_s <= view.now_s) & (served.sent_s > view.now_s)
        late = held & (due < view.now_s)
        assert view.held.tolist() == np.bincount(number[held], minlength=COUNT).tolist()
        assert view.held_late.tolist() == np.bincount(number[late], minlength=COUNT).tolist()
        assert view.unplaced == held.sum()
        some += late.any()
    assert some > 10


def test_held_requests_go_where_there_is_room_again(small_cluster: Cluster) -> None:
    """To an instance that starts, to the next pool on their route, and as before where nothing is held any more."""
    requests = crowd(11)
    routes = {
        "starts": (Start(0, 0), 45.0, 0.0),
        "another pool": (Route(((0, 1),) * COUNT, hold=(HOLD, HOLD)), 25.0, 25.0),
        "no hold": (Route(ONE_POOL), 25.0, 25.0),
    }
    for name, (action, begin_s, until_s) in routes.items():
        controller = Scripted(
            [Start(0, 0), Start(0, 1), Route(ONE_POOL, hold=(HOLD,))],
            then=lambda view, action=action: [action] if view.now_s == 25.0 else [],
        )
        changes = replace(small_cluster.changes, start_s=(20.0,) * 3)
        served = simulate_cluster(requests, replace(small_cluster, changes=changes), controller)
        assert np.isfinite(served.finish_s).all()
        waiting = (requests.arrival_s < 25.0) & (served.sent_s >= 25.0)
        assert waiting.any()
        if name == "no hold":
            assert (served.sent_s[waiting] == 25.0).all()
            np.testing.assert_array_equal(
                served.sent_s[requests.arrival_s > 25.0], requests.arrival_s[requests.arrival_s > 25.0]
            )
        else:
            more = 2 if name == "starts" else 1
            assert served.sent_s[served.instance == more].min() == max(begin_s, until_s)


def test_answers_that_were_begun_on_a_failed_host_go_first(small_cluster: Cluster) -> None:
    requests = poisson(100.0, 25.0, _PROMPT, _OUTPUT, seed=2)
    controller = Scripted([Start(2, 0), Start(2, 0), Route(ONE_POOL, hold=(HOLD,))])
    served = simulate_cluster(requests, small_cluster, controller, failures=(Failure(0, 20.0),))
    begun = (served.first_token_s < 20.0) & (served.sent_s >= 20.0)
    others = (requests.arrival_s < 20.0) & (served.sent_s >= 20.0) & ~begun
    assert begun.sum() > 3 and others.sum() > 3
    assert served.sent_s[begun].max() <= served.sent_s[others].min()
    assert np.isfinite(served.finish_s).all()
    assert served.gap_counts.sum() == (requests.output_tokens - 1).sum()


class Holding(Whims):
    """Anything at any time, with little held on instances."""

    def route(self) -> Route:
        return replace(super().route(), hold=(200, 200))


def test_whatever_happens_each_request_is_answered_or_given_up_at_the_end(small_cluster: Cluster) -> None:
    for seed in range(20):
        changes = replace(small_cluster.changes, start_s=(2.0, 3.0, 4.0), reshard_s=1.5)
        cluster = replace(small_cluster, changes=changes)
        controller, requests = Holding(seed, cluster), poisson(12.0, 30.0, _PROMPT, _OUTPUT, seed=seed)
        failures = (Failure(seed % 4, 12.0, 20.0), Failure((seed + 1) % 4, 15.3, 17.0))
        served = simulate_cluster(requests, cluster, controller, router=Router(seed % 4), failures=failures, seed=seed)
        gone = served.instance < 0
        assert (np.isfinite(served.finish_s) == ~gone).all()
        assert served.end_s > 3600.0 or not gone.any()
        assert served.gap_counts.sum() >= (requests.output_tokens[~gone] - 1).sum()


def test_the_drawn_cases_hold_requests() -> None:
    held = 0
    for seed in range(0, 120, 3):
        case = drawn_cluster(seed)
        held += bool((run_of(case, seed, hold=True).sent_s > case.requests.arrival_s).any())
    assert held > 10
