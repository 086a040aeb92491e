"""A load of several classes on one engine: every parallel degree, clock and batch, simulated, as ways to choose among.

The simulator says what each class of requests would see of each way; :class:`wastenot.frontiers.mix.Load` then answers what
costs least within bounds on the latencies of each class and of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wastenot.arrays import BoolArray, FloatArray
from wastenot.errors import BadInputError
from wastenot.frontiers.mix import Load, RequestClass
from wastenot.setting import Setting
from wastenot.stack.serving.deadlines import LITERATURE, Deadlines
from wastenot.stack.serving.engine import Engine
from wastenot.stack.serving.profile_file import EngineProfile
from wastenot.stack.serving.requests import Requests
from wastenot.stack.serving.simulation.policy import Fixed
from wastenot.stack.serving.simulation.served import Served
from wastenot.stack.serving.simulation.simulate import simulate

_PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class EngineWay:
    """How one engine is run.

    Attributes:
        gpus: parallel degree.
        setting: of its GPUs, throughout.
        most_running: requests that may be in the batch.
    """

    gpus: int
    setting: Setting
    most_running: int

    def __str__(self) -> str:
        return f"{self.gpus} GPUs, batch up to {self.most_running}, {self.setting}"


def engine_load(
    profile: EngineProfile,
    requests: Requests,
    classes: Mapping[str, BoolArray],
    *,
    batches: Sequence[int] = (16, 64, 256),
    deadlines: Deadlines = LITERATURE,
) -> Load:
    """A load on one engine, in all the ways that its profile has.

    Each class has the latencies ``ttft``, ``tbt`` (mean time between the tokens of a request) and ``e2e``, in seconds, each
    as mean and as percentile of its requests (``ttft p50``, ``p90``, ``p99``), and ``late``, the share of its requests that
    broke their deadlines. Weights are numbers of requests. All classes are served in the same way, whose energy is shared
    alike by all requests. Ways that the profile or the cache does not cover are left out.

    Bound means and ``late`` of all, percentiles only of a class: a mean of percentiles is none.

    Args:
        profile: of the engine, by parallel degree.
        requests: that come.
        classes: by name, which of the requests belong to it; each request belongs to one; each shape (requests,).
        batches: most requests in the batch, each of them a way.
        deadlines: that ``late`` is counted by.

    Raises:
        BadInputError: classes that overlap, leave requests out or are empty.
        OutsideProfileError: no way is covered by the profile.
    """
    belongs = np.array([np.asarray(each, dtype=np.bool_) for each in classes.values()])
    if (
        belongs.shape != (len(classes), len(requests))
        or not (belongs.sum(axis=0) == 1).all()
        or not belongs.any(axis=1).all()
    ):
        raise BadInputError("`classes`: each request must belong to exactly one class, and each class needs a request")
    found, beyond = _simulated(profile.engines, requests, batches, deadlines)
    if not found:
        raise beyond or BadInputError("`batches`: give at least one")
    ways = [way for way, _ in found]
    energy = np.array([run.total_energy_j / len(requests) for _, run in found])
    latencies = [_latencies(run, deadlines) for _, run in found]
    parts = []
    for name, mask in zip(classes, belongs, strict=True):
        parts.append(RequestClass(name, float(mask.sum()), energy, _of_class(latencies, mask), ways))
    return Load(tuple(parts), shared=True)


def _simulated(
    engines: Sequence[Engine], requests: Requests, batches: Sequence[int], deadlines: Deadlines
) -> tuple[list[tuple[EngineWay, Served]], BadInputError | None]:
    """Each way with its run, and why some cannot be."""
    found: list[tuple[EngineWay, Served]] = []
    beyond: BadInputError | None = None
    for engine in engines:
        for index, setting in enumerate(engine.tables.settings):
            for batch in batches:
                try:
                    run = simulate(requests, replace(engine, most_running=batch), Fixed(index), deadlines=deadlines)
                except BadInputError as error:  # beyond the tables, or a request that never fits into the cache
                    beyond = error
                    continue
                found.append((EngineWay(engine.gpus, setting, batch), run))
    return found, beyond


def _latencies(run: Served, deadlines: Deadlines) -> dict[str, FloatArray]:
    """Of each request; ``nan`` between the tokens of an answer with one."""
    requests = run.requests
    gaps = requests.output_tokens - 1
    between = np.full(len(requests), np.nan)
    np.divide(run.finish_s - run.first_token_s, gaps, out=between, where=gaps > 0)
    return {
        "ttft": run.first_token_s - requests.arrival_s,
        "tbt": between,
        "e2e": run.finish_s - requests.arrival_s,
        "late": (~run.kept(deadlines)).astype(np.float64),
    }


def _of_class(latencies: Sequence[Mapping[str, FloatArray]], mask: BoolArray) -> dict[str, FloatArray]:
    """Means and percentiles of a class by each way."""
    columns: dict[str, FloatArray] = {"late": np.array([each["late"][mask].mean() for each in latencies])}
    for name in ("ttft", "tbt", "e2e"):
        values = np.array([each[name][mask] for each in latencies])
        values = values[:, ~np.isnan(values[0])]
        if not values.shape[1]:
            values = np.zeros((len(latencies), 1))  # nothing to wait for
        columns[name] = values.mean(axis=1)
        for percentile, column in zip(_PERCENTILES, np.percentile(values, _PERCENTILES, axis=1), strict=True):
            columns[f"{name} p{percentile}"] = column
    return columns
