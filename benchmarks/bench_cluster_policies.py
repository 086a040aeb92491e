"""Policies of a cluster beside each other on an hour of real conversation traffic, scaled to 96 GPUs: energy and attainment.

    lengths and nothing else    0 … 10 min of the trace
    judges                      the whole hour, at a rate for which a single pool at its greatest clock takes 96 GPUs

Policies that forecast are told the peak of each half hour by class, which is true: what a perfect template would say. The
best static plan and the single pool know the whole hour. A policy that misses the share in one class is marked failed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving_loads import PROFILES, SHAPED_S, conversation
from benchmarks.verdict import Verdict
from wastenot.arrays import FloatArray
from wastenot.stack.serving.cluster.best_static import best_static
from wastenot.stack.serving.cluster.classes import COUNT, NAMES
from wastenot.stack.serving.cluster.controllers.dynamo import Dynamo
from wastenot.stack.serving.cluster.controllers.fixed import Fixed, Placed, multi_pool, single_pool, throttled
from wastenot.stack.serving.cluster.controllers.parking import Parking
from wastenot.stack.serving.cluster.demand import Demand
from wastenot.stack.serving.cluster.model import ChangeTimes, Cluster, Controller
from wastenot.stack.serving.cluster.oracle import slot_estimate, step_bound
from wastenot.stack.serving.cluster.profiles import Profiles
from wastenot.stack.serving.cluster.results import ClusterResult, result_of
from wastenot.stack.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.stack.serving.loads import at_rate
from wastenot.stack.serving.profile_file import read_engine
from wastenot.stack.serving.requests import Requests

KEPT = Path(__file__).parents[1] / "data" / "serving" / "cluster-policies.json"
HOUR_S = 3600.0
SLOT_S = 300.0
SHARE = 0.99
RATE_PER_S = 40.0
"""With which a single pool for the peak takes 12 instances of 8 GPUs."""
STEP_TOKENS = {2: 512, 4: 1024, 8: 1024}
"""Budgets of a step, by parallel degree, with which an instance takes most of the shaping part's requests."""
START_S = 420.0
"""Of an instance of 70 billion parameters: 6 to 8 minutes in the literature."""


def cluster() -> Cluster:
    """96 GPUs on 12 hosts."""
    engines = read_engine(PROFILES / "llama-70b-sim-h200.json").engines
    layouts = tuple(replace(each, most_step_tokens=STEP_TOKENS[each.gpus]) for each in engines)
    return Cluster(layouts, 12, ChangeTimes((START_S,) * len(layouts)))


def counts(requests: Requests, cluster: Cluster, slot_s: float) -> FloatArray:
    """Requests by slot and class."""
    number = cluster.classes.of(requests.prompt_tokens, requests.output_tokens)
    slots = int(np.ceil(HOUR_S / slot_s))
    at = np.minimum((requests.arrival_s / slot_s).astype(np.intp), slots - 1)
    return np.bincount(at * COUNT + number, minlength=slots * COUNT).reshape(slots, COUNT).astype(np.float64)


def policies(load: Requests, profiles: Profiles) -> Iterator[Callable[[], Controller]]:
    """Each made when its turn comes; the single pool first."""
    slots = counts(load, profiles.cluster, SLOT_S) / SLOT_S
    peak = slots.max(axis=0)
    busiest = slots[slots.sum(axis=1).argmax()]
    halves = np.stack([slots[: len(slots) // 2].max(axis=0), slots[len(slots) // 2 :].max(axis=0)])

    def demand() -> Demand:
        return Demand(halves, HOUR_S / 2)

    def dynamo(name: str, *knobs: str) -> Callable[[], Controller]:
        turned = {each: each in knobs for each in ("instances", "shards", "clocks")}
        return lambda: Dynamo(profiles, demand(), name, **turned, lasts_s=HOUR_S)

    yield lambda: single_pool(profiles, busiest)
    yield lambda: fewest_in_one_pool(load, profiles.cluster)
    yield lambda: multi_pool(profiles, peak)
    yield dynamo("ScaleInst", "instances")
    yield dynamo("ScaleShard", "shards")
    yield dynamo("ScaleFreq", "clocks")
    yield dynamo("DynamoLLM", "instances", "shards", "clocks")
    yield lambda: throttled(profiles, busiest)
    yield lambda: best_static(load, profiles.cluster, share=SHARE)
    yield lambda: Parking(profiles, demand())


def fewest_in_one_pool(load: Requests, cluster: Cluster) -> Fixed:
    """The single pool with as few instances as keep the deadlines, in hindsight: SinglePool without its head-room."""
    last = len(cluster.layouts) - 1
    for count in range(1, cluster.gpus // cluster.layouts[last].gpus + 1):
        plan = Fixed("fewest in one pool", (Placed(0, last, count),), ((0,),) * COUNT)
        if not result_of(simulate_cluster(load, cluster, plan), load, cluster, share=SHARE).failed:
            break
    return plan


def row_of(result: ClusterResult, single_j: float, took_s: float) -> str:
    """One line of the table."""
    ttft = "/".join(f"{1e3 * each:.0f}" for each in result.ttft_p99_s)
    worst = int(np.nanargmin(result.by_class))
    failed = " FAILED" if result.failed else ""
    return (
        f"    {result.policy:18s} {result.energy_j / 1e6:6.1f} MJ {1 - result.energy_j / single_j:6.1%} saved, "
        f"{result.attainment:.2%} kept, {NAMES[worst]} {result.by_class[worst]:.2%}{failed}, TTFT {ttft} ms, "
        f"TBT {1e3 * result.tbt_p99_s:.0f} ms, {result.power_w[0] / 1e3:.1f}/{result.power_w[1] / 1e3:.1f} kW, "
        f"{'+'.join(f'{each:.1f}' for each in result.instances)} instances, {result.gpu_hours:.0f} GPU h ({took_s:.0f} s)"
    )


def main(verdict: Verdict) -> None:
    """Judge every policy."""
    there = cluster()
    load = at_rate(conversation(), RATE_PER_S, HOUR_S + 0.1, seed=5)
    load = load.part(0.0, HOUR_S)
    profiles = Profiles(there, conversation(0.0, SHAPED_S))
    print(f"  {len(load):,} requests in an hour, {there.gpus} GPUs, llama-70b on sim:h200 (simulated)", flush=True)
    results: dict[str, ClusterResult] = {}
    for make in policies(load, profiles):
        begun = time.perf_counter()
        controller = make()
        served = simulate_cluster(load, there, controller)
        result = result_of(served, load, there, share=SHARE)
        results[result.policy] = result
        print(row_of(result, results["SinglePool"].energy_j, time.perf_counter() - begun), flush=True)
    bound_j, estimate_j = step_bound(load, there), slot_estimate(Profiles(there, load), counts(load, there, SLOT_S))
    print(
        f"    oracle: no policy under {bound_j / 1e6:.1f} MJ; with free changes about {estimate_j / 1e6:.1f} MJ", flush=True
    )
    check(verdict, results, estimate_j)
    KEPT.write_text(json.dumps(rows(results, bound_j, estimate_j), indent=1) + "\n")


def check(verdict: Verdict, results: dict[str, ClusterResult], estimate_j: float) -> None:
    """What is asked of ours."""
    ours, dynamo, static = results["ours"], results["DynamoLLM"], results["best static"]
    verdict.at_least("ours attains, in the class with the least", float(np.nanmin(ours.by_class)), SHARE)
    verdict.at_least("the single pool attains", float(np.nanmin(results["SinglePool"].by_class)), SHARE)
    verdict.at_least("ours saves more than DynamoLLM by", 1 - ours.energy_j / dynamo.energy_j, 0.0)
    # An hour's load hardly varies here, and the plan knows it: what following the load is worth shows over days.
    verdict.at_most("energy of ours over the best static plan's, chosen in hindsight", ours.energy_j / static.energy_j, 1.05)
    verdict.at_most("energy of ours over the oracle's estimate", ours.energy_j / estimate_j, 1.10)


def rows(results: dict[str, ClusterResult], bound_j: float, estimate_j: float) -> dict[str, Any]:
    """For the documentation."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [None if np.isnan(each) else float(f"{each:.6g}") for each in value]
        return float(f"{value:.6g}") if isinstance(value, float) else value

    policies = [{name: plain(value) for name, value in asdict(each).items()} for each in results.values()]
    return {"policies": policies, "step_bound_j": plain(bound_j), "slot_estimate_j": plain(estimate_j)}


if __name__ == "__main__":
    judged = Verdict()
    main(judged)
    sys.exit(bool(judged.missed))
