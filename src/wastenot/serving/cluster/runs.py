"""Runs of a scenario: each a policy on a traffic with a seed, over processes, kept as they end so that none is run twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path

import numpy as np

from wastenot import serving
from wastenot.core.arrays import FloatArray
from wastenot.core.blas import single_threaded
from wastenot.core.errors import BadInputError
from wastenot.core.processes import shared_out
from wastenot.core.progress import Progress
from wastenot.planning.tariff import Tariff
from wastenot.serving.cluster.beforehand import Beforehand, beforehand
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.controllers.parking import Parking
from wastenot.serving.cluster.model import Cluster, ClusterServed, InstanceState
from wastenot.serving.cluster.oracle import step_bound
from wastenot.serving.cluster.policies import POLICIES, Given
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.cluster.results import Tally, gpu_hours, power_percentiles_w
from wastenot.serving.cluster.scenario import Scenario, digest_of
from wastenot.serving.cluster.scenario_file import PoissonPart
from wastenot.serving.cluster.scenario_load import LoadParts, load_parts_of
from wastenot.serving.cluster.simulation.simulate import make_ready, simulate_cluster_in_parts
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.served import gap_percentile_s

BINS = 240
"""Of a timeline, or a little more."""
_BINS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0)
_FEW = 100_000
"""Requests that are simulated in about the time that a process takes to start."""
_MISSES = 0.25
"""Of those that are allowed, which clocks that climb are planned for: traffic comes in more bursts than is planned for."""
_AT_WORK = (InstanceState.SERVING, InstanceState.DRAINING)
_MEANS = "wastenot.cluster-run/1"
"""Part of the digest of a run: another where the same run would be recorded otherwise."""


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


Keep = Callable[[Run, str], None]
"""Called with each run that has ended, and its record as JSON."""

Share = Callable[[Scenario, Sequence[Run]], Iterator[tuple[Run, str]]]
"""Runs shared over something: each with its record as JSON, as it ends."""


def runs_of(scenario: Scenario) -> tuple[Run, ...]:
    """All runs: seeds, and in each the traffics with every policy."""
    found: list[Run] = []
    for seed in scenario.parts.run.seeds:
        for place, traffic in enumerate(scenario.parts.traffic):
            values = traffic.model_dump(mode="json")
            values |= {key: scenario.files[name] for key, name in traffic.files.items()}
            given = {
                "means": _MEANS,
                "code": _code_sha256(),
                "scenario": scenario.digest,
                "traffic": values,
                "seed": seed,
                "attain": scenario.parts.run.attain,
                "head_room": scenario.parts.run.head_room,
            }
            found += [
                Run(policy, place, traffic.label, seed, digest_of(given | {"policy": policy}), digest_of(given))
                for policy in scenario.parts.run.policies
            ]
    return tuple(found)


@lru_cache(maxsize=1)
def _code_sha256() -> str:
    """Of the simulator, its engines and its controllers: a change of them may change any run."""
    digest, room = hashlib.sha256(), Path(serving.__file__).parent
    for part in ("model", "policies", "simulation", "cluster"):
        for file in sorted((room / part).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def run_scenario(
    scenario: Scenario,
    *,
    done: Mapping[str, str] | None = None,
    keep: Keep | None = None,
    share: Share | None = None,
    progress: Progress | None = None,
) -> tuple[RunRecord, ...]:
    """All runs of a scenario, in the order of :func:`runs_of`.

    Args:
        scenario: to run.
        done: records of runs that have ended before, as JSON, by the digest of their run.
        keep: called with each run as it ends.
        share: the work with others, such as :func:`over_processes`; by default this process does it all.
        progress: informed of every run.

    Raises:
        BadInputError: a trace is too short, or a policy finds no plan that keeps the deadlines.
    """
    runs = runs_of(scenario)
    texts = {run.digest: done[run.digest] for run in runs if done is not None and run.digest in done}
    missing = [run for run in runs if run.digest not in texts]
    if progress is not None and missing:
        progress.begin(len(runs), len(texts))
    for run, text in (share or _alone)(scenario, missing):
        texts[run.digest] = text
        if keep is not None:
            keep(run, text)
        if progress is not None:
            progress.step(f"{run.policy} on {run.label}, seed {run.seed}")
    return tuple(record_of(texts[run.digest]) for run in runs)


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


def _alone(scenario: Scenario, runs: Sequence[Run]) -> Iterator[tuple[Run, str]]:
    for run in runs:
        yield run, simulated(scenario, run)


def over_processes(processes: int | None = None) -> Share:
    """Runs shared over several processes of this machine.

    Args:
        processes: at most; by default one per core, but only this one where runs are so few and short that the others would
            take as long to start, and to plan for the same traffic once more, as they save.
    """

    def share(scenario: Scenario, runs: Sequence[Run]) -> Iterator[tuple[Run, str]]:
        if processes is None and _are_short(scenario, runs):
            yield from _alone(scenario, runs)
            return
        most = min(processes or os.cpu_count() or 1, len(runs))
        if most <= 1:
            yield from _alone(scenario, runs)
            return
        make_ready(scenario.cluster)
        yield from shared_out(most, simulated, ((run, (scenario, run)) for run in runs))

    return share


def _are_short(scenario: Scenario, runs: Sequence[Run]) -> bool:
    """Whether all are of few requests of one traffic with one seed, of which policies share what they plan by."""
    if len({run.load_digest for run in runs}) > 1:
        return False
    traffic = [scenario.parts.traffic[run.traffic] for run in runs]
    return all(isinstance(each, PoissonPart) and each.rate_per_s * each.duration_s <= _FEW for each in traffic)


@dataclass(frozen=True, slots=True)
class _Place:
    """A traffic with a seed; two are the same where all that they depend on is."""

    digest: str
    traffic: int
    seed: int
    scenario: Scenario = field(compare=False, repr=False)


@lru_cache(maxsize=4)
def _loaded(place: _Place) -> tuple[LoadParts, Profiles]:
    """What all policies on a traffic with a seed share; kept, as a process runs several of them."""
    scenario = place.scenario
    load = load_parts_of(scenario, scenario.parts.traffic[place.traffic], place.seed)
    return load, Profiles(scenario.cluster, load.known.lengths, share=scenario.parts.run.attain, misses=_MISSES)


def simulated(scenario: Scenario, run: Run) -> str:
    """A run; its record as JSON.

    Raises:
        BadInputError: says of which run.
    """
    try:
        with single_threaded():
            return json.dumps(asdict(_simulated(scenario, run)), allow_nan=False)
    except BadInputError as error:
        raise BadInputError(f"{scenario.path}: {run.policy} on '{run.label}', seed {run.seed}: {error}") from error


def _simulated(scenario: Scenario, run: Run) -> RunRecord:
    load, profiles = _loaded(_Place(run.load_digest, run.traffic, run.seed, scenario))
    part, cluster = scenario.parts.run, scenario.cluster
    tariffs = {name: each.later(load.begin_s) for name, each in scenario.tariffs.items()}
    minimised = tariffs.get(scenario.parts.objective.minimise)
    given = Given(cluster, profiles, load, part.head_room, scenario.router, part.attain, minimised)
    told: deque[FloatArray | None] = deque()

    def parts() -> Iterator[Requests]:
        for requests, tokens in load.parts():
            told.append(tokens)
            yield requests

    tally, controller = Tally(cluster), POLICIES[run.policy].make(given)
    served = simulate_cluster_in_parts(
        parts(),
        cluster,
        controller,
        tally.add,
        router=scenario.router,
        predict=None if load.predictor is None else lambda _: np.asarray(told.popleft()),
        failures=load.failures,
        seed=run.seed,
        bin_s=bin_of(load.duration_s),
    )
    said = None
    if isinstance(controller, Parking):
        said = beforehand(cluster, *controller.keeps(), load.known)
    return _record(run, load.duration_s, cluster, tally, served, part.attain, tariffs, said)


def bin_of(duration_s: float) -> float:
    """The width of a timeline's bins, a round one."""
    return next((each for each in _BINS_S if duration_s / each <= BINS), _BINS_S[-1])


def _record(
    run: Run,
    duration_s: float,
    cluster: Cluster,
    tally: Tally,
    served: ClusterServed,
    attain: float,
    tariffs: Mapping[str, Tariff],
    said: Beforehand | None,
) -> RunRecord:
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
