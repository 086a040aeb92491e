"""Scenarios: a cluster, its traffic, and the policies to compare on it, as a TOML file that people write.

    [cluster]        engines, hosts, what changes take
    [deadlines]      of requests
    [predictor]      how well answers' lengths are known
    [[traffic]]      loads, each by itself: a trace, Poisson arrivals, a curve of rates; flash crowds, hosts that fail
    [objective]      what a kilowatt-hour costs over time, in money and in carbon
    [run]            policies, seeds, router

Files that a scenario names stand relative to it; ``sample:engine.json`` is a sample of that name. :func:`example` is one
with comments.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from wastenot.core.documents import first_problem
from wastenot.core.errors import BadInputError
from wastenot.core.samples import file_named, sample_file
from wastenot.planning.objective_kinds import CLUSTERS
from wastenot.planning.tariff import HOUR_S, Tariff
from wastenot.serving.cluster.model import Cluster, Router
from wastenot.serving.cluster.scenario_file import (
    KINDS,
    ClusterPart,
    CurvePart,
    ObjectivePart,
    ScenarioPart,
    TracePart,
    first_twice,
)
from wastenot.serving.cluster.tariffs import read_tariff
from wastenot.serving.cluster.traffic import Distribution, RateCurve, read_curve, read_distribution
from wastenot.serving.model.engine import Engine, Scheduler
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.model.traces import read_trace

_REMEDY: Final = "'wastenot serve simulate --example' writes a working scenario"


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """What a traffic that follows a curve is drawn by.

    Attributes:
        rates: over time, the stretch that was asked for at the rate that was.
        prompt: lengths of prompts.
        output: lengths of answers.
        whole: the same rates with what comes before and after the stretch.
        first: slot of the whole with which the stretch begins.
    """

    rates: RateCurve
    prompt: Distribution
    output: Distribution
    whole: RateCurve
    first: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """A scenario that was read.

    Attributes:
        path: of its file.
        name: for people.
        parts: what it says.
        cluster: with its engines.
        digest: of all that runs depend on but policy, traffic and seed: cluster, engines, deadlines, predictor, objective,
            router.
        tariffs: what a kilowatt-hour costs, by ``price`` and ``carbon``; those that are given.
        traces: requests of each trace, by the label of its traffic.
        curves: of traffics that follow one, by their place.
        files: SHA-256 of each of these files, by name.
        with_assumed: the same with clocks that were neither measured nor fitted, where those are asked for.
        stock: the same with engines that serve first come, first served, where these prefill by deadline.
    """

    path: Path
    name: str
    parts: ScenarioPart
    cluster: Cluster
    digest: str
    tariffs: dict[str, Tariff]
    traces: dict[str, Requests]
    curves: dict[int, Curve]
    files: dict[str, str]
    with_assumed: Scenario | None = None
    stock: Scenario | None = None

    @property
    def router(self) -> Router:
        """How an instance is chosen."""
        return Router[self.parts.run.router.replace("-", "_").upper()]

    def with_run(self, *, policies: Sequence[str] | None = None, seeds: Sequence[int] | None = None) -> Scenario:
        """The same with other policies or seeds; by default its own."""
        update = {"policies": policies, "seeds": seeds}
        run = self.parts.run.model_copy(update={name: tuple(each) for name, each in update.items() if each is not None})
        assumed, stock = (
            None if each is None else each.with_run(policies=policies, seeds=seeds)
            for each in (self.with_assumed, self.stock)
        )
        return replace(self, parts=self.parts.model_copy(update={"run": run}), with_assumed=assumed, stock=stock)


def example() -> str:
    """A scenario with comments, which runs as it is."""
    return sample_file("scenario.toml").read_text(encoding="utf-8")


def read_scenario(
    path: str | os.PathLike[str],
    policies: Sequence[str] | None = None,
    *,
    assumed_clocks: bool = False,
    scheduler: Scheduler | None = None,
) -> Scenario:
    """Read a scenario with all files that it names.

    Args:
        path: of the file.
        policies: names that are known; any by default.
        assumed_clocks: also run policies with clocks at which what steps cost is assumed, whatever the file says.
        scheduler: of the engines, whatever the file says.

    Raises:
        BadInputError: a file cannot be read or is wrong; names file and key, and says how to fix it.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror or error}; {_REMEDY}") from error
    return parse_scenario(content, path, policies, assumed_clocks=assumed_clocks, scheduler=scheduler)


def parse_scenario(
    content: bytes,
    path: str | os.PathLike[str],
    policies: Sequence[str] | None = None,
    *,
    assumed_clocks: bool = False,
    scheduler: Scheduler | None = None,
) -> Scenario:
    """A scenario from the content of its file; raises like :func:`read_scenario`."""
    where = Path(path)
    try:
        values: dict[str, Any] = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: is not TOML: {error}; {_REMEDY}") from error
    try:
        # By way of JSON, in which arrays are tuples and types are exact all the same.
        parts = ScenarioPart.model_validate_json(json.dumps(values, default=str))
    except ValidationError as error:
        location, problem = first_problem(error)
        raise _error(path, _key(location), problem) from error
    if assumed_clocks:
        parts = _with_cluster(parts, assumed_clocks=True)
    if scheduler is not None:
        parts = _with_cluster(parts, scheduler=scheduler)
    _check_run(parts, path, policies)
    engines, engines_sha256 = _engines(parts.cluster, where)
    cluster = _cluster(parts, engines, where)
    _check_failures(parts, path)
    traces, curves = {}, {}
    files: dict[str, str] = {}
    tariffs = _tariffs(parts.objective, where, files)
    for place, each in enumerate(parts.traffic):
        key = f"traffic[{place + 1}]"
        for name, file in each.files.items():
            there = _there(file, f"{key}.{name}", where)
            with _named(f"{key}.{name}", where):
                files[file] = _sha256(there)
        if isinstance(each, TracePart):
            with _named(f"{key}.file", where):
                read = read_trace(
                    file_named(each.file, where.parent), lenient=each.lenient, prefix_blocks=each.prefix_blocks
                )
            traces[each.label] = read.requests
        elif isinstance(each, CurvePart):
            with _named(key, where):
                curves[place] = _curve(each, where.parent)
    of = parts.model_dump(mode="json", include={"cluster", "deadlines", "predictor", "objective"})
    del of["cluster"]["assumed_clocks"]
    of["cluster"]["scheduler"] = cluster.layouts[0].scheduler.value
    costs = {name: files[each] for name, each in parts.objective.given.items() if isinstance(each, str)}
    of |= {"engines": engines_sha256, "router": parts.run.router, "costs": costs}
    made = Scenario(where, parts.name or where.stem, parts, cluster, digest_of(of), tariffs, traces, curves, files)
    asked = parts.cluster.assumed_clocks
    if all(len(each.known_settings) == len(each.tables.settings) for each in engines):
        return _with_stock(made, of)
    if asked and not all(each.known_settings for each in engines):
        return _with_stock(made, of)
    of |= {"within_known_clocks": True}
    known = replace(
        made,
        parts=_with_cluster(parts, assumed_clocks=False),
        cluster=replace(cluster, layouts=tuple(each.within_known_clocks() for each in engines)),
        digest=digest_of(of),
    )
    return _with_stock(replace(known, with_assumed=made) if asked else known, of)


def _with_stock(scenario: Scenario, of: dict[str, Any]) -> Scenario:
    """Together with the same on engines as they can be had, where prompts go by deadline; ``of``: what its digest is of."""
    if all(each.scheduler != Scheduler.DEADLINE for each in scenario.cluster.layouts):
        return scenario
    fcfs = Scheduler.FCFS
    stock = replace(
        scenario,
        parts=_with_cluster(scenario.parts, scheduler=fcfs),
        cluster=replace(scenario.cluster, layouts=tuple(replace(each, scheduler=fcfs) for each in scenario.cluster.layouts)),
        digest=digest_of(of | {"cluster": of["cluster"] | {"scheduler": fcfs.value}}),
        with_assumed=None,
    )
    return replace(scenario, stock=stock)


def _with_cluster(parts: ScenarioPart, **update: object) -> ScenarioPart:
    return parts.model_copy(update={"cluster": parts.cluster.model_copy(update=update)})


def digest_of(values: object) -> str:
    """SHA-256 of values as JSON, in hexadecimal."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _error(path: str | os.PathLike[str], key: str, problem: str) -> BadInputError:
    return BadInputError(f"{path}: {key}: {problem}; {_REMEDY}")


def _key(location: Sequence[int | str]) -> str:
    """A key as people count: ``traffic[1].rate_per_s`` is of the first traffic."""
    parts: list[str] = []
    for place, step in enumerate(location):
        if isinstance(step, int):
            parts[-1] += f"[{step + 1}]"
        elif not (step in KINDS and place and isinstance(location[place - 1], int)):
            parts.append(step)
    return ".".join(parts) or "file"


def _check_run(parts: ScenarioPart, path: str | os.PathLike[str], policies: Sequence[str] | None) -> None:
    for place, each in enumerate(parts.run.policies, 1):
        if policies is not None and each not in policies:
            raise _error(path, f"run.policies[{place}]", f"'{each}' is not one of {', '.join(policies)}")
    twice = first_twice([each.label for each in parts.traffic])
    if twice is not None:
        raise _error(path, "traffic", f"two are called '{twice}'; give each a 'name'")


def _check_failures(parts: ScenarioPart, path: str | os.PathLike[str]) -> None:
    for place, traffic in enumerate(parts.traffic, 1):
        for count, failure in enumerate(traffic.failures, 1):
            if failure.host >= parts.cluster.hosts:
                known = f"hosts are 0 to {parts.cluster.hosts - 1}" if parts.cluster.hosts > 1 else "the only host is 0"
                raise _error(path, f"traffic[{place}].failures[{count}].host", f"there is no host {failure.host}; {known}")
            if failure.back_s is not None and failure.back_s <= failure.at_s:
                raise _error(path, f"traffic[{place}].failures[{count}].back_s", "must be later than at_s")


def _engines(part: ClusterPart, where: Path) -> tuple[tuple[Engine, ...], str]:
    """Layouts by rising degree, and a digest of the files they are from."""
    names = (part.engines,) if isinstance(part.engines, str) else part.engines
    if not names:
        raise _error(where, "cluster.engines", "names no file; make one with 'wastenot serve profile --out'")
    found: dict[int, Engine] = {}
    digest = hashlib.sha256()
    for name in names:
        try:
            engines = read_engine(file_named(name, where.parent)).engines
            digest.update(file_named(name, where.parent).read_bytes())
        except BadInputError as error:
            raise BadInputError(f"{where}: cluster.engines: {error}") from error
        for each in engines:
            other = found.setdefault(each.gpus, each)
            if other is not each:
                raise _error(where, "cluster.engines", f"two engines of {each.gpus} GPUs; name files of different degrees")
            first = next(iter(found.values()))
            if (each.model, each.device) != (first.model, first.device):
                raise _error(
                    where,
                    "cluster.engines",
                    f"{each.model} on {each.device} beside {first.model} on {first.device}; name files of one of them",
                )
    missing = [degree for degree in part.degrees or () if degree not in found]
    if missing:
        known = ", ".join(map(str, sorted(found)))
        raise _error(where, "cluster.degrees", f"no engine has {missing[0]} GPUs; these files have engines of {known}")
    chosen = [engine for degree, engine in sorted(found.items()) if part.degrees is None or degree in part.degrees]
    if part.step_tokens is not None:
        budgets = part.step_tokens if isinstance(part.step_tokens, tuple) else (part.step_tokens,) * len(chosen)
        if len(budgets) != len(chosen):
            degrees = ", ".join(str(each.gpus) for each in chosen)
            raise _error(
                where, "cluster.step_tokens", f"{len(budgets)} budgets; give one, or one for each of the degrees {degrees}"
            )
        chosen = [replace(each, most_step_tokens=tokens) for each, tokens in zip(chosen, budgets, strict=True)]
    if part.scheduler is not None:
        chosen = [replace(each, scheduler=part.scheduler) for each in chosen]
    if part.idle_power_w is not None:
        chosen = [each.with_idle_power(part.idle_power_w * each.gpus) for each in chosen]
    return tuple(chosen), digest.hexdigest()


def _cluster(parts: ScenarioPart, engines: tuple[Engine, ...], where: Path) -> Cluster:
    part = parts.cluster
    for each in engines:
        if part.gpus_per_host % each.gpus:
            raise _error(
                where,
                "cluster.gpus_per_host",
                f"an engine of {each.gpus} GPUs does not divide hosts of {part.gpus_per_host}; leave it out by 'degrees'",
            )
    start = part.changes.start_s
    if isinstance(start, tuple) and len(start) != len(engines):
        degrees = ", ".join(str(each.gpus) for each in engines)
        raise _error(where, "cluster.changes.start_s", f"{len(start)} times; give one for each of the degrees {degrees}")
    return Cluster(engines, part.hosts, part.changes.times(engines), part.gpus_per_host, deadlines=parts.deadlines)


def _there(name: str, key: str, where: Path) -> Path:
    """A file that a scenario names."""
    file = file_named(name, where.parent)
    if not file.is_file():
        raise BadInputError(
            f"{where}: {key}: {file}: cannot be read: there is no such file; name it by its path from the scenario"
        )
    return file


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _named(key: str, where: Path) -> Iterator[None]:
    """Errors of what is read inside name the scenario's key, too."""
    try:
        yield
    except (BadInputError, OSError) as error:
        raise BadInputError(f"{where}: {key}: {error}") from error


def _tariffs(part: ObjectivePart, where: Path, files: dict[str, str]) -> dict[str, Tariff]:
    """The costs that are given, and digests of the files that they are from."""
    found: dict[str, Tariff] = {}
    for name, each in part.given.items():
        if isinstance(each, str):
            key = f"objective.{CLUSTERS[name].per_kwh}"
            file = _there(each, key, where)
            files[each] = _sha256(file)
            with _named(key, where):
                tariff = read_tariff(file)
        else:
            tariff = Tariff.hourly(each)
        found[name] = tariff.later(part.begin_hour * HOUR_S)
    return found


def _curve(part: CurvePart, folder: Path) -> Curve:
    curve = read_curve(folder / part.rates)
    if part.rate_per_s is not None:
        curve = curve.with_mean(part.rate_per_s)
    first = int(part.begin_s / curve.slot_s)
    last = len(curve.rate_per_s) if part.duration_s is None else first + math.ceil(part.duration_s / curve.slot_s)
    if first >= len(curve.rate_per_s):
        raise BadInputError(f"begin_s: the curve has only {curve.duration_s:g} s; begin earlier")
    prompt, output = (
        read_distribution(folder / part.lengths, part.service, each) for each in (part.prompt_field, part.output_field)
    )
    return Curve(curve.part(first, last), prompt, output, curve, first)
