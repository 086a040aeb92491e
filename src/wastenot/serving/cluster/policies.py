"""Policies by name: how each controller of a cluster is made from what is known before the first request comes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from wastenot.planning.tariff import Tariff
from wastenot.serving.cluster.best_static import best_static
from wastenot.serving.cluster.controllers.dynamo import Dynamo
from wastenot.serving.cluster.controllers.fixed import Fixed, all_on, multi_pool, single_pool, steered
from wastenot.serving.cluster.controllers.parking import Parking
from wastenot.serving.cluster.demand import Demand
from wastenot.serving.cluster.model import Cluster, Controller, Router
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.cluster.scenario_load import LoadParts
from wastenot.serving.policies.by_name import Name, maker_of


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What a policy is made from.

    Attributes:
        cluster: to steer.
        profiles: of its engines under what was seen before.
        load: whose ``known`` part is for all, and its requests for those that choose in hindsight.
        head_room: above the greatest rate seen before, for policies that plan for it.
        router: of the run.
        share: of the requests of each class that are to keep their deadlines.
        tariff: whose cost is to be least; ``None`` where it is the energy.
    """

    cluster: Cluster
    profiles: Profiles
    load: LoadParts
    head_room: float
    router: Router
    share: float
    tariff: Tariff | None = None


@dataclass(frozen=True, slots=True)
class ClusterPolicy:
    """A policy to compare.

    Attributes:
        make: its controller.
        about: it in a few words.
        hindsight: whether it knows the requests that it is judged on.
    """

    make: Callable[[Given], Controller]
    about: str
    hindsight: bool = False


def _dynamo(
    name: str, *, instances: bool = False, shards: bool = False, clocks: bool = False
) -> Callable[[Given], Controller]:
    def make(given: Given) -> Controller:
        return Dynamo(given.profiles, _template(given), name, instances, shards, clocks, head_room=given.head_room)

    return make


def _template(given: Given) -> Demand:
    """For DynamoLLM, as published: past weeks as they were; where none are known, the history's peak follows what comes."""
    known = given.load.known
    return Demand(known.forecast_per_s, known.slot_s, follows=len(known.forecast_per_s) == 1)


def _calibrated(given: Given) -> Demand:
    """For parking: past weeks corrected by what is seen, with the errors of such forecasts; or the busiest minutes."""
    known = given.load.known
    return Demand(known.busiest_per_s[None]) if known.forecast is None else Demand.of(known.forecast)


def _steered(name: Name, *, whole: bool = False) -> Callable[[Given], Controller]:
    return lambda given: steered(_all_on(given) if whole else _single_pool(given), maker_of(name))


def _all_on(given: Given) -> Fixed:
    return all_on(given.cluster, len(given.cluster.layouts) - 1)


def _single_pool(given: Given) -> Fixed:
    return single_pool(given.profiles, given.load.known.peak_per_s, head_room=given.head_room)


@lru_cache(maxsize=4)
def _static_plan(profiles: Profiles, load: LoadParts, share: float, router: Router, one_pool: bool) -> Fixed:
    """Kept, as several policies begin with it; it takes a search."""
    return best_static(load.requests, profiles.cluster, share=share, router=router, one_pool=one_pool)


def _best_static(given: Given, *, one_pool: bool = False) -> Fixed:
    return replace(_static_plan(given.profiles, given.load, given.share, given.router, one_pool))  # a run of its own


def _full_clock(given: Given) -> Controller:
    plan = _best_static(given)
    return replace(plan, name="best static, full clock", placed=tuple(replace(each, setting=None) for each in plan.placed))


def _with_room(given: Given) -> Controller:
    """More instances by the head room, as far as there are GPUs for them."""
    plan, layouts = _best_static(given), given.cluster.layouts
    left, placed = given.cluster.gpus - sum(each.count * layouts[each.layout].gpus for each in plan.placed), []
    for each in plan.placed:
        more = min(math.ceil(each.count * given.head_room), left // layouts[each.layout].gpus)
        left -= more * layouts[each.layout].gpus
        placed.append(replace(each, count=each.count + more))
    return replace(plan, name="best static, with room", placed=tuple(placed))


POLICIES: Mapping[str, ClusterPolicy] = {
    "all-on": ClusterPolicy(_all_on, "every GPU on, in the largest instances, all at the maximum clock"),
    "single-pool": ClusterPolicy(
        _single_pool,
        "as many instances as the peak needs, the largest there are, all at the maximum clock",
    ),
    "multi-pool": ClusterPolicy(
        lambda given: multi_pool(given.profiles, given.load.known.peak_per_s, head_room=given.head_room),
        "as single-pool, with instances of their own for each class of requests that fills one",
    ),
    "throttllem": ClusterPolicy(
        _steered("throttllem"),
        "single-pool with the lowest clock at which all its requests meet their deadlines, after throttLL'eM (HPCA'25)",
    ),
    "greenllm": ClusterPolicy(
        _steered("greenllm"),
        "single-pool with clocks set from each instance's queue of prompts and by two loops over its tokens, after GreenLLM",
    ),
    "price": ClusterPolicy(
        _steered("price"),
        "single-pool with the clock that costs each instance least at the current prices, as for a single engine",
    ),
    "by-metrics": ClusterPolicy(
        _steered("by-metrics"), "single-pool with the clock chosen from each instance's metrics, as `serve control` sets it"
    ),
    "all-on-by-metrics": ClusterPolicy(
        _steered("by-metrics", whole=True),
        "all-on with the clock chosen as by-metrics does: what `serve control` adds alone",
    ),
    "scale-instances": ClusterPolicy(
        _dynamo("ScaleInstances", instances=True), "multi-pool with instances started and stopped as the load changes"
    ),
    "scale-degrees": ClusterPolicy(
        _dynamo("ScaleDegrees", shards=True), "multi-pool with the number of GPUs per instance changed as the load does"
    ),
    "scale-clocks": ClusterPolicy(_dynamo("ScaleClocks", clocks=True), "multi-pool with clocks that follow the load"),
    "dynamollm": ClusterPolicy(
        _dynamo("DynamoLLM", instances=True, shards=True, clocks=True),
        "multi-pool with instances, GPUs per instance and clocks that follow the load, after DynamoLLM (HPCA'25)",
    ),
    "best-static": ClusterPolicy(
        _best_static,
        "instances, GPUs per instance and clocks that never change: the cheapest that meet the deadlines, in hindsight",
        hindsight=True,
    ),
    "best-static-full-clock": ClusterPolicy(
        _full_clock, "the instances of best-static at the maximum clock: what fewer instances save alone", hindsight=True
    ),
    "best-static-with-room": ClusterPolicy(
        _with_room, "best-static with more instances than these requests needed, by the head room", hindsight=True
    ),
    "best-static-in-one-pool": ClusterPolicy(
        partial(_best_static, one_pool=True),
        "as best-static, with all requests on the same instances, as with parking",
        hindsight=True,
    ),
    "parking": ClusterPolicy(
        lambda given: Parking(given.profiles, _calibrated(given), tariff=given.tariff),
        "instances not needed stand by for bursts or sleep (parked); clocks rise with the queue",
    ),
}
"""By the names that scenarios use, in the order in which they are explained."""
