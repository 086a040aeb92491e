"""A run of a scenario, and what a study keeps of it: a record, which is written as JSON and read again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.planning.tariff import Tariff
from wastenot.serving.cluster.beforehand import Beforehand
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.model import Cluster, ClusterServed, InstanceState
from wastenot.serving.cluster.oracle import step_bound
from wastenot.serving.cluster.results import Tally, gpu_hours, power_percentiles_w
from wastenot.serving.simulation.served import gap_percentile_s

BINS = 240
"""Of a timeline, or a little more."""
_BINS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0)
_AT_WORK = (InstanceState.SERVING, InstanceState.DRAINING)


@dataclass(frozen=True, slots=True)
class Run:
    """One of a scenario's runs.

    Attributes:
        policy: by the name that scenarios use.
        traffic: its place in the scenario.
        label: of the traffic.
        seed: of the traffic.
        digest: of all that its result depends on.
        load_digest: of those that the policy has no part in.
    """

    policy: str
    traffic: int
    label: str
    seed: int
    digest: str
    load_digest: str


@dataclass(frozen=True, slots=True)
class RunTimeline:
    """A run by bins of time; lists as JSON has them, ``None`` where nothing is known.

    Attributes:
        bin_s: their width.
        power_w: mean of each.
        gpus: by state, on average; the names of states are those of :class:`InstanceState`.
        instances: that serve, by layout, on average.
        clock_mhz: mean ceiling over GPUs that serve.
        arrivals: of requests, by class.
        missed: of those, the ones that missed a deadline, by class.
    """

    bin_s: float
    power_w: list[float]
    gpus: dict[str, list[float]]
    instances: list[list[float]]
    clock_mhz: list[float | None]
    arrivals: list[list[int]]
    missed: list[list[int]]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What became of a run, as a study keeps it.

    Attributes:
        policy: by the name that scenarios use.
        name: that the controller gives itself.
        traffic: label.
        seed: of it.
        requests: that came.
        unanswered: of those, the ones that were given up.
        prompt_tokens: of all requests.
        cached_tokens: of those, in a cache of prefixes.
        output_tokens: made.
        duration_s: in which requests came.
        end_s: when the last was answered.
        energy_j: of the run.
        cost: of it, in the scenario's currency; ``None`` where no price is given.
        carbon_g: grams of CO2e; ``None`` where they are not given.
        energy_by_use_j: its parts.
        bound_j: below which no policy can answer these requests with these layouts.
        attainment: share of all requests that kept their deadlines.
        by_class: the same of each class, ``None`` where it has no requests.
        ttft_p99_s: 99th percentile by kind of prompt, ``None`` where there are none.
        tbt_p99_s: 99th percentile of the time between tokens.
        power_p50_w: median over bins of the timeline.
        power_p99_w: 99th percentile of the same.
        gpu_hours: of GPUs that were not off.
        clock_mhz: mean ceiling over GPUs that serve; ``None`` where it is not known.
        instances: that served, by layout, on average.
        actions: that were done, by kind, routes left out.
        refused: actions that could not be done.
        switches: of clocks.
        failed: whether a class missed its share.
        beforehand: what the policy said before the first request; ``None`` where it says nothing.
        timeline: by bins of time.
    """

    policy: str
    name: str
    traffic: str
    seed: int
    requests: int
    unanswered: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    duration_s: float
    end_s: float
    energy_j: float
    cost: float | None
    carbon_g: float | None
    energy_by_use_j: dict[str, float]
    bound_j: float
    attainment: float
    by_class: list[float | None]
    ttft_p99_s: list[float | None]
    tbt_p99_s: float
    power_p50_w: float
    power_p99_w: float
    gpu_hours: float
    clock_mhz: float | None
    instances: list[float]
    actions: dict[str, int]
    refused: int
    switches: int
    failed: bool
    beforehand: Beforehand | None
    timeline: RunTimeline

    @property
    def energy_per_token_j(self) -> float:
        """Energy for each token of an answer."""
        return self.energy_j / max(self.output_tokens, 1)

    @property
    def worst_class(self) -> float:
        """The least attainment of a class."""
        return min(each for each in self.by_class if each is not None)


def record_of(text: str) -> RunRecord:
    """A record from its JSON.

    Raises:
        ValueError: it is none.
    """
    values = json.loads(text)
    if not isinstance(values, dict) or set(values) != {field.name for field in fields(RunRecord)}:
        raise ValueError("not a valid run")
    try:
        said = values["beforehand"] and Beforehand(**values["beforehand"])
        return RunRecord(**values | {"timeline": RunTimeline(**values["timeline"]), "beforehand": said})
    except TypeError as error:
        raise ValueError(f"not a valid run ({error})") from error


def bin_of(duration_s: float) -> float:
    """The width of a timeline's bins, a round one."""
    return next((each for each in _BINS_S if duration_s / each <= BINS), _BINS_S[-1])


def recorded(
    run: Run,
    duration_s: float,
    cluster: Cluster,
    tally: Tally,
    served: ClusterServed,
    attain: float,
    tariffs: Mapping[str, Tariff],
    said: Beforehand | None,
) -> RunRecord:
    """The record of a run that has ended.

    Args:
        run: which.
        duration_s: in which its requests came.
        cluster: it ran on.
        tally: of its requests.
        served: what the simulator says of it.
        attain: share of the requests of each class that must keep their deadlines.
        tariffs: of price and of carbon, where they are given, from the first request on.
        said: by the policy before it.
    """
    costs = {
        name: each.cost(served.timeline.energy_j, served.timeline.bin_s, served.end_s) for name, each in tariffs.items()
    }
    timeline, by_class = served.timeline, tally.by_class()
    power_p50_w, power_p99_w = power_percentiles_w(timeline)
    at_work = timeline.gpus[:, _AT_WORK].sum(axis=1)
    known = np.isfinite(timeline.clock_mhz) & (at_work > 0)
    refused = sum(bool(each.refused) for each in served.log)
    actions = Counter(type(each.action).__name__ for each in served.log if not each.refused)
    actions.pop("Route", None)
    return RunRecord(
        policy=run.policy,
        name=served.name,
        traffic=run.label,
        seed=run.seed,
        requests=tally.work.requests,
        unanswered=tally.unanswered,
        prompt_tokens=tally.prompt_tokens,
        cached_tokens=tally.cached_tokens,
        output_tokens=tally.output_tokens,
        duration_s=duration_s,
        end_s=float(served.end_s),
        energy_j=served.total_energy_j,
        cost=costs.get("price"),
        carbon_g=costs.get("carbon"),
        energy_by_use_j={name: float(each) for name, each in served.energy_j.items()},
        bound_j=step_bound(tally.work, cluster),
        attainment=tally.attainment,
        by_class=_with_none(by_class),
        ttft_p99_s=_with_none(tally.ttft_p99_s()),
        tbt_p99_s=gap_percentile_s(served.gap_counts, 0.99),
        power_p50_w=power_p50_w,
        power_p99_w=power_p99_w,
        gpu_hours=gpu_hours(timeline),
        clock_mhz=float(np.average(timeline.clock_mhz[known], weights=at_work[known])) if known.any() else None,
        instances=timeline.instances.mean(axis=0).tolist(),
        actions=dict(sorted(actions.items())),
        refused=refused,
        switches=served.switches,
        failed=bool(np.nanmin(by_class) < attain),
        beforehand=said,
        timeline=_timeline(served),
    )


def _timeline(served: ClusterServed) -> RunTimeline:
    timeline = served.timeline
    bins = len(timeline.energy_j)
    lasted_s = np.minimum(served.end_s - timeline.bin_s * np.arange(bins), timeline.bin_s)
    gpus = {state.name.lower(): timeline.gpus[:, state].round(4).tolist() for state in InstanceState}
    return RunTimeline(
        bin_s=timeline.bin_s,
        power_w=(timeline.energy_j / np.maximum(lasted_s, 1e-9)).round(3).tolist(),
        gpus={name: each for name, each in gpus.items() if any(each)},
        instances=timeline.instances.round(4).tolist(),
        clock_mhz=_with_none(timeline.clock_mhz.round(1)),
        arrivals=timeline.arrivals.reshape(bins, COUNT).tolist(),
        missed=timeline.missed.reshape(bins, COUNT).tolist(),
    )


def _with_none(values: FloatArray) -> list[float | None]:
    return [float(each) if np.isfinite(each) else None for each in values]
