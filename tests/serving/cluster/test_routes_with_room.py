"""Pools that have room for so many requests: the next one takes what is too much for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.model import Action, Cluster, ClusterView, Route, Router, Start
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.model.requests import Requests


@dataclass
class TwoPools:
    room: tuple[int, ...]
    name: str = "two pools"
    period_s: float = 100.0

    def begin(self, cluster: Cluster) -> list[Action]:
        return [Start(0, 0), Start(0, 0), Start(0, 1), Route(((0, 1),) * COUNT, self.room)]

    def control(self, view: ClusterView) -> list[Action]:
        return []


@pytest.mark.parametrize("router", [Router.LEAST_REQUESTS, Router.LEAST_TOKENS, Router.POWER_OF_TWO])
def test_the_next_pool_takes_what_is_too_much(small_cluster: Cluster, router: Router) -> None:
    at_once = Requests(np.zeros(10), np.full(10, 100), np.full(10, 50))

    def placed(*room: int) -> list[int]:
        served = simulate_cluster(at_once, small_cluster, TwoPools(room), router=router)
        return [int((served.instance == each).sum()) for each in range(3)]

    assert placed()[2] == 0
    some = placed(3)
    assert sum(some) == 10
    assert max(some[:2]) == 3
    if router != Router.POWER_OF_TWO:
        assert some == [3, 3, 4]
        assert placed(3, 2) == [4, 4, 2], "where no pool has room, the first takes the rest"
    assert placed(0) == [0, 0, 10]


def test_room_for_fewer_than_none_is_refused(small_cluster: Cluster) -> None:
    served = simulate_cluster(Requests(np.zeros(1), np.array([9]), np.array([9])), small_cluster, TwoPools((-1,)))
    assert [each.refused for each in served.log if each.refused] == ["room for fewer than no requests"]
