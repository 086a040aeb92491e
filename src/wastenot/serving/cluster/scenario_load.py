"""The load of a scenario's run: requests to serve, what policies are told of them, and what they know beforehand.

    trace     ├── history ──┤├───────────── judged ─────────────┤
    Poisson   the same service drawn with another seed is what is known, without its flash crowds
    a curve   what comes before the judged stretch, and before that weeks which are made up from the curve

Nothing of what is judged is known beforehand: lengths, rates and peaks come from the history. Of a curve's past only counts
by slot are drawn, and a few requests for their lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import ndtr

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.planning.tariff import DAY_S, WEEK_S
from wastenot.serving.cluster.classes import COUNT, class_of
from wastenot.serving.cluster.forecast import SLOT_S, Forecast, Past, forecast, template
from wastenot.serving.cluster.model import Failure
from wastenot.serving.cluster.predicted import Predictor, confusion_of
from wastenot.serving.cluster.scenario import Curve, Scenario
from wastenot.serving.cluster.scenario_file import CrowdPart, CurvePart, PoissonPart, PredictorPart, TracePart, TrafficPart
from wastenot.serving.cluster.traffic import Distribution, RateCurve, SyntheticTraffic, varied
from wastenot.serving.model.loads import LogNormal, at_rate, bursty, poisson
from wastenot.serving.model.requests import Requests, joined

PART_S = 3600.0
"""Of a load, by default, where it comes in parts."""
LENGTHS = 50_000
"""Requests of a curve's past whose lengths are drawn, at most."""
_HISTORY_SEED = 1_000_003
"""Added to the seed of a load that is drawn for that of its history."""
_FINER = 10
"""Places of a slot at which a curve is looked up."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What policies know before the first request comes.

    Attributes:
        lengths: earlier requests; of a curve, some that say how long they are, and nothing of when they came.
        mean_per_s: their rate by class; shape (9,).
        peak_per_s: the greatest rate of each class over five minutes; shape (9,).
        busiest_per_s: rates of each class in the five minutes with most requests; shape (9,).
        forecast_per_s: the template of each slot to come, of past weeks; one slot, the peak, where no time is known to be
            like another; shape (slots, 9).
        slot_s: length of these slots.
        forecast: a calibrated one of the same slots; ``None`` where there is one slot.
    """

    lengths: Requests
    mean_per_s: FloatArray
    peak_per_s: FloatArray
    busiest_per_s: FloatArray
    forecast_per_s: FloatArray
    slot_s: float = math.inf
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LoadParts:
    """A load that is drawn part by part; what is known beforehand needs none of them.

    Attributes:
        duration_s: in which requests come.
        known: beforehand.
        predictor: of answers' lengths; ``None`` where they are known.
        failures: of hosts.
        draw: the requests, in parts of a length in seconds, arrivals counted from the start of the load; as often as wanted,
            and always the same ones.
        where: traffic and file, for errors.
        begin_s: of what is served, since its trace or curve began.
    """

    duration_s: float
    known: Known
    predictor: Predictor | None
    failures: tuple[Failure, ...]
    draw: Callable[[float], Iterator[Requests]]
    where: str
    begin_s: float = 0.0

    def parts(self, part_s: float = PART_S) -> Iterator[tuple[Requests, FloatArray | None]]:
        """Requests with the lengths of answers as they are told (``None`` for the true ones), however they are cut.

        Raises:
            BadInputError: there are none at all.
        """
        count = 0
        for requests in self.draw(part_s):
            yield requests, None if self.predictor is None else self.predictor.told(requests, count)
            count += len(requests)
        if not count:
            raise BadInputError(f"{self.where}: has no requests to serve; use more of it")

    def requests(self) -> Iterator[Requests]:
        """The same without what is told of them."""
        return self.draw(PART_S)


def load_parts_of(scenario: Scenario, traffic: TrafficPart, seed: int) -> LoadParts:
    """The load of one of a scenario's traffics with one seed; only that of a curve is drawn part by part as it is asked for.

    Raises:
        BadInputError: a trace is too short for its history.
    """
    draw: Callable[[float], Iterator[Requests]]
    begin_s = 0.0
    if isinstance(traffic, CurvePart):
        begin_s = traffic.begin_s
        place = next(place for place, each in enumerate(scenario.parts.traffic) if each is traffic)
        curve = scenario.curves[place]
        known, duration_s = _known_of_curve(curve, traffic, seed), curve.rates.duration_s
        draw = _by_curve(curve, traffic.crowds, traffic.rank_correlation, seed).parts
    else:
        if isinstance(traffic, TracePart):
            history, requests, history_s, duration_s = _of_trace(scenario, traffic, seed)
            begin_s = history_s
        else:
            history, requests = _drawn(traffic, (), seed + _HISTORY_SEED), _drawn(traffic, traffic.crowds, seed)
            history_s = duration_s = traffic.duration_s
        known = _known(history, history_s)

        def draw(part_s: float) -> Iterator[Requests]:
            return _cut(requests, part_s)

    return LoadParts(
        duration_s,
        known,
        predictor_of(scenario.parts.predictor, known.lengths, seed),
        traffic.failures,
        draw,
        f"{scenario.path}: traffic '{traffic.label}'",
        begin_s,
    )


def predictor_of(part: PredictorPart, lengths: Requests, seed: int) -> Predictor | None:
    """The predictor of a scenario with earlier requests; ``None`` where answers' lengths are known."""
    if part.confusion is not None:
        return Predictor(np.array(part.confusion), lengths, (seed, 1))
    return Predictor(confusion_of(part.right), lengths, (seed, 1)) if part.right < 1.0 else None


def past_of(curve: Curve, traffic: CurvePart, shares: FloatArray, seed: int) -> Past:
    """What came before the judged stretch of a curve, by slot and class.

    It is what the curve has there. Where that is less than a week, weeks before the curve are made up from it: a curve of a
    day at most stands for each day, another one for each week, and where it has nothing, nothing is known.

    Args:
        curve: to follow.
        traffic: by which weeks are made up.
        shares: of the classes; shape (9,).
        seed: of what is made up.
    """
    whole, random = curve.whole, np.random.default_rng([seed, 2])
    begin_s = curve.first * whole.slot_s
    made_s = 0.0 if begin_s >= WEEK_S else traffic.history_weeks * WEEK_S
    count = int((begin_s + made_s) / SLOT_S)
    begins_s = begin_s + SLOT_S * (np.arange(count) - count)
    at_s = begins_s[:, None] + SLOT_S * (np.arange(_FINER) + 0.5) / _FINER
    again_s = DAY_S if whole.duration_s <= DAY_S else WEEK_S * math.ceil(whole.duration_s / WEEK_S)
    slot = (np.where(at_s < 0, at_s % again_s, at_s) / whole.slot_s).astype(np.intp)
    there = slot < len(whole.rate_per_s)
    rate = np.where(there, whole.rate_per_s[np.where(there, slot, 0)], np.nan).mean(axis=1)
    made = int((begins_s < 0).sum())
    if made:
        day = np.floor((begins_s[:made] + (whole.since_monday_s or 0.0)) / DAY_S).astype(np.intp)
        sigmas = {"day_sigma": traffic.day_sigma, "slot_sigma": traffic.slot_sigma}
        rate[:made] = varied(rate[:made], SLOT_S, day - day[0], random, **sigmas)
    counts = random.poisson(np.nan_to_num(rate)[:, None] * SLOT_S * shares).astype(np.float64)
    counts[np.isnan(rate)] = np.nan
    since_s = None if whole.since_monday_s is None else float((whole.since_monday_s + begins_s[0]) % WEEK_S)
    return Past(counts, SLOT_S, since_s)


def _of_trace(scenario: Scenario, traffic: TracePart, seed: int) -> tuple[Requests, Requests, float, float]:
    where = f"{scenario.path}: traffic '{traffic.label}'"
    requests = scenario.traces[traffic.label]
    last_s = math.nextafter(float(requests.arrival_s[-1]), math.inf)
    history_s = traffic.history_s or last_s / 6
    if not history_s < last_s:
        raise BadInputError(f"{where}: lasts {last_s:,.0f} s, no longer than its history; shorten history_s")
    history, judged = requests.part(0.0, history_s), requests.part(history_s, math.inf)
    lasts_s = last_s - history_s
    if traffic.rate_per_s is not None:
        if not len(judged):
            raise BadInputError(f"{where}: no requests come after its history; shorten history_s")
        factor = traffic.rate_per_s * lasts_s / len(judged)
        judged = at_rate(judged, traffic.rate_per_s, lasts_s, seed=seed)
        history = at_rate(history, factor * len(history) / history_s, history_s, seed=seed + _HISTORY_SEED)
    duration_s = min(lasts_s, traffic.duration_s or math.inf)
    return history, judged.part(0.0, duration_s), history_s, duration_s


def _drawn(traffic: PoissonPart, crowds: Sequence[CrowdPart], seed: int) -> Requests:
    prompt, output = traffic.prompt_tokens.lengths(), traffic.output_tokens.lengths()
    if traffic.burstiness != 1:
        return _bursty(traffic, crowds, seed)
    if not crowds:
        return poisson(traffic.rate_per_s, traffic.duration_s, prompt, output, seed=seed)
    rates = RateCurve(traffic.duration_s, np.array([traffic.rate_per_s]))
    curve = Curve(rates, _distribution(prompt), _distribution(output), rates)
    return joined(list(_by_curve(curve, crowds, 0.0, seed).parts()))


def _bursty(traffic: PoissonPart, crowds: Sequence[CrowdPart], seed: int) -> Requests:
    """At one rate, then in crowds time is stretched: as many requests come in less of it, their bursts as well."""
    rates = _with_crowds(RateCurve(traffic.duration_s, np.array([traffic.rate_per_s])), crowds)
    stretched_s = np.concatenate([[0.0], np.cumsum(rates.rate_per_s * rates.slot_s)]) / traffic.rate_per_s
    lengths = traffic.prompt_tokens.lengths(), traffic.output_tokens.lengths()
    drawn = bursty(traffic.rate_per_s, float(stretched_s[-1]), *lengths, traffic.burstiness, seed=seed)
    arrival_s = np.interp(drawn.arrival_s, stretched_s, rates.slot_s * np.arange(len(stretched_s)))
    return Requests(arrival_s, drawn.prompt_tokens, drawn.output_tokens)


def _with_crowds(rates: RateCurve, crowds: Sequence[CrowdPart]) -> RateCurve:
    for each in crowds:
        rates = rates.with_crowd(each.factor, each.begin_s, each.rise_s, each.length_s)
    return rates


def _by_curve(curve: Curve, crowds: Sequence[CrowdPart], rank_correlation: float, seed: int) -> SyntheticTraffic:
    rates = _with_crowds(curve.rates, crowds)
    return SyntheticTraffic(rates, curve.prompt, curve.output, rank_correlation, seed)


def _cut(requests: Requests, part_s: float) -> Iterator[Requests]:
    """In parts, arrivals still counted from the beginning."""
    last_s = float(requests.arrival_s[-1]) if len(requests) else 0.0
    cuts = np.searchsorted(requests.arrival_s, part_s * np.arange(int(last_s / part_s) + 2))
    for first, last in pairwise(cuts):
        yield requests.only(slice(first, last))


def _distribution(lengths: LogNormal) -> Distribution:
    """Log-normal lengths by points of their distribution."""
    deviates = np.linspace(-5.0, 5.0, 401)
    return Distribution(ndtr(deviates), np.minimum(lengths.median * np.exp(lengths.sigma * deviates), lengths.most))


def _known(history: Requests, history_s: float) -> Known:
    """From requests, where no time is known to be like another."""
    number = class_of(history.prompt_tokens, history.output_tokens)
    slots = max(round(history_s / SLOT_S), 1)
    slot = np.minimum((history.arrival_s / history_s * slots).astype(np.intp), slots - 1)
    count = np.bincount(slot * COUNT + number, minlength=slots * COUNT).reshape(slots, COUNT).astype(np.float64)
    rate = count * slots / history_s
    peak, busiest = rate.max(axis=0), rate[rate.sum(axis=1).argmax()]
    return Known(history, count.sum(axis=0) / history_s, peak, busiest, peak[None, :])


def _known_of_curve(curve: Curve, traffic: CurvePart, seed: int) -> Known:
    """From past weeks; lengths from some requests that are drawn like those to come, with another seed."""
    seed += _HISTORY_SEED
    whole = curve.whole
    hourly = RateCurve(3600.0, np.array([min(whole.rate_per_s.sum() * whole.slot_s, LENGTHS) / 3600.0]))
    lengths = joined(list(SyntheticTraffic(hourly, curve.prompt, curve.output, traffic.rank_correlation, seed).parts()))
    of_class = np.bincount(class_of(lengths.prompt_tokens, lengths.output_tokens), minlength=COUNT)
    past = past_of(curve, traffic, of_class / max(of_class.sum(), 1), seed)
    ahead = math.ceil(curve.rates.duration_s / SLOT_S - 1e-9)
    rate = past.rate_per_s
    return Known(
        lengths,
        np.nanmean(rate, axis=0),
        np.nanmax(rate, axis=0),
        rate[np.nanargmax(rate.sum(axis=1))],
        template(past, ahead),
        SLOT_S,
        forecast(past, ahead),
    )
