"""The load of a scenario's run: requests to serve, what policies are told of them, and what they know beforehand.

    trace     ├── history ──┤├───────────── judged ─────────────┤
    Poisson   the same service with another seed is what is known, without its flash crowds
    a curve   the same days of another week, likewise

Nothing of what is judged is known beforehand: lengths, rates and peaks come from the history.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from wastenot.arrays import FloatArray
from wastenot.errors import BadInputError
from wastenot.stack.serving.cluster.classes import CLASSES, COUNT
from wastenot.stack.serving.cluster.model import Failure
from wastenot.stack.serving.cluster.scenario import (
    CrowdPart,
    Curve,
    CurvePart,
    PoissonPart,
    PredictorPart,
    Scenario,
    TracePart,
    TrafficPart,
)
from wastenot.stack.serving.cluster.traffic import Distribution, RateCurve, SyntheticTraffic
from wastenot.stack.serving.loads import LogNormal, at_rate, poisson
from wastenot.stack.serving.requests import Requests

SLOT_S = 300.0
"""Of the history, by which its greatest rate is told."""
FORECAST_S = 1800.0
"""Of what is forecast from earlier weeks."""
_HISTORY_SEED = 1_000_003
"""Added to the seed of a load that is drawn for that of its history."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What policies know before the first request comes.

    Attributes:
        lengths: earlier requests.
        mean_per_s: their rate by class; shape (9,).
        peak_per_s: the greatest rate of each class over five minutes; shape (9,).
        forecast_per_s: the same within each slot of time to come; one slot where no time is like another; shape (slots, 9).
        slot_s: length of these slots.
    """

    lengths: Requests
    mean_per_s: FloatArray
    peak_per_s: FloatArray
    forecast_per_s: FloatArray
    slot_s: float = math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What is served in a run.

    Attributes:
        requests: to serve.
        duration_s: in which they come.
        known: beforehand.
        predicted_tokens: lengths of answers as router and policies are told; ``None`` for the true ones.
        failures: of hosts.
        begin_s: of what is served, since its trace or curve began.
    """

    requests: Requests
    duration_s: float
    known: Known
    predicted_tokens: FloatArray | None
    failures: tuple[Failure, ...]
    begin_s: float = 0.0


def load_of(scenario: Scenario, traffic: TrafficPart, seed: int) -> Load:
    """The load of one of a scenario's traffics with one seed.

    Raises:
        BadInputError: a trace is too short for its history, or nothing comes after it.
    """
    if isinstance(traffic, TracePart):
        history, requests, history_s, duration_s = _of_trace(scenario, traffic, seed)
    elif isinstance(traffic, CurvePart):
        place = next(place for place, each in enumerate(scenario.parts.traffic) if each is traffic)
        curve = scenario.curves[place]
        history = _by_curve(curve, (), traffic.rank_correlation, seed + _HISTORY_SEED)
        requests = _by_curve(curve, traffic.crowds, traffic.rank_correlation, seed)
        history_s = duration_s = curve.rates.duration_s
    else:
        history, requests = _drawn(traffic, (), seed + _HISTORY_SEED), _drawn(traffic, traffic.crowds, seed)
        history_s = duration_s = traffic.duration_s
    if not len(requests):
        raise BadInputError(f"{scenario.path}: traffic '{traffic.label}': has no requests to serve; take more of it")
    random = np.random.default_rng([seed, 1])
    return Load(
        requests,
        duration_s,
        _known(history, history_s, FORECAST_S if isinstance(traffic, CurvePart) else math.inf),
        predicted(requests, scenario.parts.predictor, random),
        tuple(Failure(**each.model_dump()) for each in traffic.failures),
        history_s if isinstance(traffic, TracePart) else traffic.begin_s if isinstance(traffic, CurvePart) else 0.0,
    )


def predicted(requests: Requests, predictor: PredictorPart, random: np.random.Generator) -> FloatArray | None:
    """Lengths of answers as they are told beforehand: true ones, or those of another request of a neighbouring kind."""
    if predictor.right >= 1.0:
        return None
    kinds = np.searchsorted(CLASSES.output_below, requests.output_tokens, side="right")
    step = np.where(random.random(len(requests)) < 0.5, -1, 1)
    neighbour = np.where(kinds == 0, 1, np.where(kinds == len(CLASSES.output_below), kinds - 1, kinds + step))
    wrong = random.random(len(requests)) >= predictor.right
    told = requests.output_tokens.astype(np.float64)
    for kind in range(len(CLASSES.output_below) + 1):
        own, taken_for = np.flatnonzero(kinds == kind), np.flatnonzero(wrong & (neighbour == kind))
        if len(own):
            told[taken_for] = requests.output_tokens[random.choice(own, len(taken_for))]
    return told


def _of_trace(scenario: Scenario, traffic: TracePart, seed: int) -> tuple[Requests, Requests, float, float]:
    where = f"{scenario.path}: traffic '{traffic.label}'"
    requests = scenario.traces[traffic.file]
    last_s = math.nextafter(float(requests.arrival_s[-1]), math.inf)
    history_s = traffic.history_s or last_s / 6
    if not history_s < last_s:
        raise BadInputError(f"{where}: lasts {last_s:,.0f} s, no longer than its history; shorten history_s")
    history, judged = requests.part(0.0, history_s), requests.part(history_s, math.inf)
    lasts_s = last_s - history_s
    if traffic.rate_per_s is not None:
        if not len(judged):
            raise BadInputError(f"{where}: nothing comes after its history; shorten history_s")
        factor = traffic.rate_per_s * lasts_s / len(judged)
        judged = at_rate(judged, traffic.rate_per_s, lasts_s, seed=seed)
        history = at_rate(history, factor * len(history) / history_s, history_s, seed=seed + _HISTORY_SEED)
    duration_s = min(lasts_s, traffic.duration_s or math.inf)
    return history, judged.part(0.0, duration_s), history_s, duration_s


def _drawn(traffic: PoissonPart, crowds: Sequence[CrowdPart], seed: int) -> Requests:
    prompt, output = traffic.prompt_tokens.lengths(), traffic.output_tokens.lengths()
    if not crowds:
        return poisson(traffic.rate_per_s, traffic.duration_s, prompt, output, seed=seed)
    rates = RateCurve(traffic.duration_s, np.array([traffic.rate_per_s]))
    return _by_curve(Curve(rates, _distribution(prompt), _distribution(output)), crowds, 0.0, seed)


def _by_curve(curve: Curve, crowds: Sequence[CrowdPart], rank_correlation: float, seed: int) -> Requests:
    rates = curve.rates
    for each in crowds:
        rates = rates.with_crowd(each.factor, each.begin_s, each.rise_s, each.length_s)
    parts = list(SyntheticTraffic(rates, curve.prompt, curve.output, rank_correlation, seed).parts())
    return Requests(
        np.concatenate([each.arrival_s for each in parts]),
        np.concatenate([each.prompt_tokens for each in parts]).astype(np.intp),
        np.concatenate([each.output_tokens for each in parts]).astype(np.intp),
    )


def _distribution(lengths: LogNormal) -> Distribution:
    """Log-normal lengths by points of their distribution."""
    deviates = np.linspace(-5.0, 5.0, 401)
    return Distribution(ndtr(deviates), np.minimum(lengths.median * np.exp(lengths.sigma * deviates), lengths.most))


def _known(history: Requests, history_s: float, forecast_s: float) -> Known:
    number = CLASSES.of(history.prompt_tokens, history.output_tokens)
    slots = max(round(history_s / SLOT_S), 1)
    slot = np.minimum((history.arrival_s / history_s * slots).astype(np.intp), slots - 1)
    count = np.bincount(slot * COUNT + number, minlength=slots * COUNT).reshape(slots, COUNT).astype(np.float64)
    rate, slot_s = count * slots / history_s, history_s / slots
    peak = rate.max(axis=0)
    if forecast_s >= history_s:
        return Known(history, count.sum(axis=0) / history_s, peak, peak[None, :])
    together = max(round(forecast_s / slot_s), 1)
    forecast = np.maximum.reduceat(rate, np.arange(0, slots, together), axis=0)
    return Known(history, count.sum(axis=0) / history_s, peak, forecast, together * slot_s)
