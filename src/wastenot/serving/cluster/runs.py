"""Runs of a scenario: each a policy on a traffic with a seed, over processes, kept as they end so that none is run twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from wastenot import serving
from wastenot.core.arrays import FloatArray
from wastenot.core.blas import single_threaded
from wastenot.core.errors import BadInputError
from wastenot.core.processes import shared_out
from wastenot.core.progress import Progress
from wastenot.serving.cluster.beforehand import beforehand
from wastenot.serving.cluster.controllers.parking import Parking
from wastenot.serving.cluster.policies import POLICIES, Given
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.cluster.results import Tally
from wastenot.serving.cluster.run_record import Run, RunRecord, bin_of, record_of, recorded
from wastenot.serving.cluster.scenario import Scenario, digest_of
from wastenot.serving.cluster.scenario_file import PoissonPart
from wastenot.serving.cluster.scenario_load import LoadParts, load_parts_of
from wastenot.serving.cluster.simulation.simulate import ClusterRun, make_ready
from wastenot.serving.model.requests import Requests

_FEW = 100_000
"""Requests that are simulated in about the time that a process takes to start."""
_MISSES = 0.25
"""Of those that are allowed, which clocks that climb are planned for: traffic comes in more bursts than is planned for."""
_MEANS = "wastenot.cluster-run/1"
"""Part of the digest of a run: another where the same run would be recorded otherwise."""


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
    served = ClusterRun(
        parts(),
        cluster,
        controller,
        tally.add,
        router=scenario.router,
        predict=None if load.predictor is None else lambda _: np.asarray(told.popleft()),
        failures=load.failures,
        seed=run.seed,
        bin_s=bin_of(load.duration_s),
    ).served()
    said = None
    if isinstance(controller, Parking):
        said = beforehand(cluster, *controller.keeps(), load.known)
    return recorded(run, load.duration_s, cluster, tally, served, part.attain, tariffs, said)
