"""What servers and simulations of them tell, as the JSON documents that ``--out`` writes and ``--json`` prints."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wastenot.core.values import as_values
from wastenot.planning.objective_kinds import CLUSTERS
from wastenot.serving.cluster.classes import NAMES

if TYPE_CHECKING:
    from wastenot.serving.cluster.outcome import Comparison, Outcome
    from wastenot.serving.cluster.run_record import RunRecord
    from wastenot.serving.cluster.simulated import SimulatedScenario
    from wastenot.serving.control.instance import Event
    from wastenot.serving.model.configurations import Recommended
    from wastenot.serving.model.recommend import Step
    from wastenot.serving.model.steering import Steered, Steering
    from wastenot.serving.tables.records import ServingPoint


def steering_document(found: Steering) -> dict[str, Any]:
    """Policies on one engine and a trace (``wastenot.steer/1``)."""
    return {
        "schema": "wastenot.steer/1",
        "engine": found.source,
        **_named(found.engine, "model", "device", "gpus"),
        **_named(found.engine.tables, "evidence", "source"),
        "step_tokens": found.engine.most_step_tokens,
        "scheduler": found.engine.scheduler.value,
        "switch_s": found.engine.switch_s,
        "assumed_below_mhz": found.engine.assumed_below_mhz,
        "assumed_clocks": found.with_assumed is not None or not found.engine.known_settings,
        "trace": found.trace,
        "requests": len(found.requests),
        "duration_s": found.duration_s,
        "rate_per_s": found.rate_per_s,
        "band": as_values(found.band),
        "capacity_per_s": None if found.capacity is None else found.capacity.rate_per_s,
        "deadlines": as_values(found.deadlines),
        "policies": [
            {
                "name": run.name,
                **as_values(run.result),
                "saved": found.saved(run),
                "attains": found.attains(run),
                "with_assumed_clocks": _in_other(found.with_assumed, run),
                "first_come_first_served": _in_other(found.stock, run, "energy_j"),
            }
            for run in found.runs
        ],
    }


def _in_other(found: Steering | None, run: Steered, *more: str) -> dict[str, Any] | None:
    """What became of the same policy with other clocks, or on another engine; ``None`` where it was not run so."""
    if found is None:
        return None
    other = found.again(run)
    return {"saved": found.saved(other), **_named(other.result, "attainment", *more)}


def _named(of: object, *names: str) -> dict[str, Any]:
    """What stands in a document by the name of the attribute."""
    return {name: getattr(of, name) for name in names}


def scenario_document(found: SimulatedScenario) -> dict[str, Any]:
    """Policies for a cluster, on each traffic of its scenario (``wastenot.serve-sim/1``)."""
    from wastenot.serving.cluster.band import band_of

    scenario, cluster = found.scenario, found.scenario.cluster
    return {
        "schema": "wastenot.serve-sim/1",
        "scenario": str(scenario.path),
        "name": scenario.name,
        "evidence": "simulated",
        **_named(cluster.layouts[0], "model", "device"),
        "engines": [{"gpus": each.gpus, **_named(each.tables, "evidence", "source")} for each in cluster.layouts],
        **_named(cluster, "hosts", "gpus_per_host"),
        "deadlines": as_values(cluster.deadlines),
        "attain": scenario.parts.run.attain,
        "router": scenario.parts.run.router,
        "scheduler": cluster.layouts[0].scheduler.value,
        "assumed_below_mhz": cluster.layouts[0].assumed_below_mhz,
        "assumed_clocks": any(each.with_assumed is not None for each in found.comparisons)
        or not all(each.known_settings for each in cluster.layouts),
        "objective": as_values(scenario.parts.objective.model_dump(mode="json")),
        "classes": list(NAMES),
        "traffic": [
            {
                "name": each.traffic,
                "kind": next(part.kind for part in scenario.parts.traffic if part.label == each.traffic),
                "bound_per_token_j": each.bound_per_token_j,
                "best": None if each.best is None else each.best.policy,
                "band": as_values(band_of(scenario, each)),
                "policies": [_policy_document(outcome, each.with_assumed, each.stock) for outcome in each.outcomes],
            }
            for each in found.comparisons
        ],
    }


def _policy_document(outcome: Outcome, with_assumed: Comparison | None, on_stock: Comparison | None) -> dict[str, Any]:
    assumed, stock = (None if each is None else each.outcome(outcome.policy) for each in (with_assumed, on_stock))
    return {
        "policy": outcome.policy,
        "failed": outcome.failed,
        "hindsight": outcome.hindsight,
        "saved": as_values(outcome.saved),
        "with_assumed_clocks": None if assumed is None else {"saved": as_values(assumed.saved), "failed": assumed.failed},
        "first_come_first_served": None if stock is None else {"saved": as_values(stock.saved), "failed": stock.failed},
        "energy_j": as_values(outcome.over(lambda run: run.energy_j)),
        **{each.recorded: _known(outcome, each.taken) for each in CLUSTERS.values() if each.per_kwh is not None},
        "energy_per_token_j": as_values(outcome.over(lambda run: run.energy_per_token_j)),
        "attainment": as_values(outcome.over(lambda run: run.attainment)),
        "worst_class": as_values(outcome.over(lambda run: run.worst_class)),
        "runs": [as_values(each) | _named(each, "energy_per_token_j", "worst_class") for each in outcome.records],
    }


def _known(outcome: Outcome, of: Callable[[RunRecord], float | None]) -> dict[str, float] | None:
    """Over seeds; ``None`` where it is not known of them."""
    if any(of(run) is None for run in outcome.records):
        return None
    values: dict[str, float] = as_values(outcome.over(lambda run: of(run) or 0.0))
    return values


def recommendation_document(found: Recommended) -> dict[str, Any]:
    """What to run each model with (``wastenot.recommend/1``)."""

    def step(at: Step | None) -> dict[str, Any] | None:
        return None if at is None else {**_named(at, "latency_s", "saved"), "point": _listed(at.point)}

    bounds, prices = found.bounds, found.prices
    return {
        "schema": "wastenot.recommend/1",
        "unit": found.unit,
        "currency": None if prices is None else prices.currency,
        "percentile": bounds.percentile,
        "bounds_s": bounds.latencies,
        "energy_budget_j": bounds.energy_per_token_j,
        "configurations": len(found.points),
        "recommendations": [
            {
                **_listed(each.point),
                **_named(each, "cost", "latency_s", "kept", "price_per_s"),
                "fastest": {**_listed(each.fastest), "cost": each.fastest_cost},
                "looser": step(each.looser),
                "tighter": step(each.tighter),
                "frontier": [_listed(point) for point in each.frontier],
            }
            for each in found.chosen
        ],
        "unmet": [_named(each, "model", "why") for each in found.unmet],
    }


def _listed(point: ServingPoint) -> dict[str, Any]:
    return {
        **_named(point, "model", "gpu", "gpus", "task"),
        "batch": point.max_running,
        **_named(point.setting, "core_mhz", "memory_mhz", "power_limit_w"),
        "evidence": point.evidence,
        "notes": list(point.notes),
        **_named(point, "energy_per_token_j", "energy_per_request_j", "power_w", "tokens_per_s"),
        "itl_p50_s": point.itl.p50_s,
        "itl_p99_s": point.itl.p99_s,
        "ttft_p50_s": point.ttft.p50_s,
        "ttft_p99_s": point.ttft.p99_s,
    }


def event_document(event: Event) -> dict[str, Any]:
    """Something that a controller of servers tells (``wastenot.serve-control/1``)."""
    return {
        "schema": "wastenot.serve-control/1", "event": event.kind, "at_unix_s": round(time.time(), 3),
        "instance": event.instance or None, **event.values, "text": event.text,
    }  # fmt: skip
