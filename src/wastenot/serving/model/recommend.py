"""Which configuration of a server to run: the least energy within deadlines, asked of the frontier of what was measured.

A configuration is a model on a number of GPUs with a number of requests in the batch, at a setting. The time of its
point on the frontier is the latency that is bounded, its energy that of a token or of a request, or what a token costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.core.setting import setting_text
from wastenot.core.wording import counted
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.nodes import Point
from wastenot.planning.tariff import J_PER_KWH
from wastenot.serving.model.engine import Engine
from wastenot.serving.tables.records import Percentiles, ServingPoint

Unit = Literal["token", "request", "money"]
Percentile = Literal["mean", "p50", "p90", "p95", "p99"]
LATENCY_NAMES = {"itl": "time between tokens", "ttft": "time to the first token", "end_to_end": "time to the last token"}


@dataclass(frozen=True, slots=True)
class Prices:
    """What a token costs.

    Attributes:
        per_kwh: of electricity.
        per_gpu_hour: of a GPU, besides its electricity.
        currency: of both.

    Raises:
        BadInputError: a price is negative or no number.
    """

    per_kwh: float = 0.15
    per_gpu_hour: float = 0.0
    currency: str = "USD"

    def __post_init__(self) -> None:
        for name, value in (("price_per_kwh", self.per_kwh), ("gpu_hour", self.per_gpu_hour)):
            if not 0.0 <= value < math.inf:
                raise BadInputError(f"`{name}` {value}: must be a number of at least 0")
        if not self.per_kwh and not self.per_gpu_hour:
            raise BadInputError("`price_per_kwh` 0: everything would be free; give a price")

    def per_million_tokens(self, point: ServingPoint) -> float | None:
        """What a million tokens of a configuration cost."""
        if point.energy_per_token_j is None:
            return None
        energy = point.energy_per_token_j / J_PER_KWH * self.per_kwh
        return 1e6 * (energy + point.gpus * self.per_gpu_hour / (3600.0 * point.tokens_per_s))


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a configuration must keep. ``None`` bounds nothing.

    Attributes:
        itl_s: bound on the time between two tokens.
        ttft_s: bound on the time to the first token.
        end_to_end_s: bound on the time from arrival to the last token.
        percentile: of all these latencies.
        energy_per_token_j: budget of energy for a token.

    Raises:
        BadInputError: a bound is not positive, or the percentile has no such name.
    """

    itl_s: float | None = None
    ttft_s: float | None = None
    end_to_end_s: float | None = None
    percentile: Percentile = "p50"
    energy_per_token_j: float | None = None

    def __post_init__(self) -> None:
        for name, value in (
            ("itl", self.itl_s),
            ("ttft", self.ttft_s),
            ("end_to_end", self.end_to_end_s),
            ("energy_budget", self.energy_per_token_j),
        ):
            if value is not None and not 0.0 < value < math.inf:
                raise BadInputError(f"`{name}` {value:g}: must be a positive number")
        if self.percentile not in get_args(Percentile):
            raise BadInputError(f"`percentile` {self.percentile}: must be one of {', '.join(get_args(Percentile))}")

    @property
    def latencies(self) -> dict[str, float]:
        """The latencies that are bounded, and their bounds in seconds."""
        bounds = {"itl": self.itl_s, "ttft": self.ttft_s, "end_to_end": self.end_to_end_s}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    def latency_of(self, point: ServingPoint, name: str = "itl") -> float | None:
        """A latency of a configuration in seconds, at the percentile that is bounded."""
        value: float | None = getattr(getattr(point, name), f"{self.percentile}_s")
        return value


@dataclass(frozen=True, slots=True)
class Step:
    """What another bound on the latency would do.

    Attributes:
        latency_s: the bound from which it holds.
        point: what would be chosen then.
        saved: part of the cost of what is chosen now that it saves; negative where it costs more.
    """

    latency_s: float
    point: ServingPoint
    saved: float


@dataclass(frozen=True, slots=True, eq=False)
class Recommendation:
    """What to run one model with.

    Attributes:
        point: the configuration.
        cost: of a token or request in joules, or of a million tokens in money.
        latency_s: the latency that is bounded first, of this configuration.
        fastest: the configuration with the least such latency that keeps the other bounds, to compare with.
        fastest_cost: of it.
        price_per_s: what a second more saves at the bound, by the lower hull of the frontier; 0 where nothing is left.
        looser: the next bound above that saves something.
        tighter: what a bound just below the latency of the configuration would cost; ``None`` for the fastest.
        kept: how many configurations keep the bounds.
        frontier: every configuration that no other one beats in both latency and cost, by rising latency.
    """

    point: ServingPoint
    cost: float
    latency_s: float
    fastest: ServingPoint
    fastest_cost: float
    price_per_s: float
    looser: Step | None
    tighter: Step | None
    kept: int
    frontier: tuple[ServingPoint, ...]

    @property
    def saved(self) -> float:
        """Part of the fastest one's cost."""
        return 1 - self.cost / self.fastest_cost


@dataclass(frozen=True, slots=True)
class Unmet:
    """A model of which no configuration keeps the bounds.

    Attributes:
        model: the model.
        why: in words, with what would.
        least_s: the least there is of the latency that is bounded first, where a greater bound would do.
    """

    model: str
    why: str
    least_s: float | None = None


def cost_function(unit: Unit, prices: Prices | None = None) -> Callable[[ServingPoint], float | None]:
    """What a configuration costs in a unit.

    Raises:
        BadInputError: no such unit.
    """
    if unit == "token":
        return lambda point: point.energy_per_token_j
    if unit == "request":
        return lambda point: point.energy_per_request_j
    if unit == "money":
        return (prices or Prices()).per_million_tokens
    raise BadInputError(f"`unit` {unit}: must be one of {', '.join(get_args(Unit))}")


def recommend(
    points: Iterable[ServingPoint], bounds: Bounds = Bounds(), *, unit: Unit = "token", prices: Prices | None = None
) -> tuple[tuple[Recommendation, ...], tuple[Unmet, ...]]:
    """For each model, the configuration of least cost within the bounds, the cheapest first; and models that have none.

    On the ML.ENERGY leaderboard's data, with the unit ``token`` and a bound on the median time between tokens, these are the
    leaderboard's own choices (its ``getBestConfigPerModel``).

    Args:
        points: configurations; those that are no steady state, or whose latencies or costs are not known, are not chosen.
        bounds: to be kept.
        unit: that is to be least.
        prices: for the unit ``money``.

    Raises:
        BadInputError: no configuration at all.
    """
    cost_of, by_model = cost_function(unit, prices), dict[str, list[ServingPoint]]()
    unstable: list[ServingPoint] = []
    for point in points:
        if point.is_stable:
            by_model.setdefault(point.model, []).append(point)
        else:
            unstable.append(point)
    if not by_model and unstable:
        raise BadInputError(
            f"none of {counted(len(unstable), 'configuration')} reached a steady state, so none is chosen; "
            f"batch {unstable[0].max_running}: {unstable[0].why_unstable}"
        )
    if not by_model:
        raise BadInputError("`points`: no configuration is left to choose from; relax the conditions")
    chosen, unmet = [], []
    for model, ofit in by_model.items():
        found = _recommend_one(model, ofit, bounds, cost_of)
        if isinstance(found, Unmet):
            unmet.append(found)
        else:
            chosen.append(found)
    nearest = sorted(unmet, key=lambda each: math.inf if each.least_s is None else each.least_s)
    return tuple(sorted(chosen, key=lambda each: each.cost)), tuple(nearest)


def with_clocks(point: ServingPoint, engine: Engine, context_tokens: float) -> tuple[ServingPoint, ...]:
    """Forecast a measured configuration at the clocks of a profile, which says by what factors time and energy change.

    Args:
        point: a configuration at automatic clocks.
        engine: a profile of the same model and GPU at the same degree; its last setting stands for automatic clocks.
        context_tokens: mean tokens in the cache of a sequence.

    Returns:
        One configuration for each of the other settings, its evidence ``forecast``; its notes say what that rests on.
        Energies and usual times between tokens change as the profile says of a decode step. Times to the first and the last
        token, and rare times between tokens (P90 and above), have prompts in them, which clocks slow more: they change as
        that of a prompt of ``context_tokens`` or of a decode step, whichever is slowed more.

    Raises:
        OutsideProfileError: the profile does not cover the configuration.
    """
    tables, batch = engine.tables, max(point.mean_running or float(point.max_running), 1.0)
    auto = len(tables.settings) - 1
    prompt = float(np.clip(context_tokens, tables.prefill_tokens[0], tables.prefill_tokens[-1]))
    base, base_prompt = tables.decode(auto, batch, context_tokens), tables.prefill(auto, prompt)
    rests_on = f"clocks forecast with {engine.model or 'a profile'} on {engine.device or 'an unnamed device'}"
    forecast = []
    for index, setting in enumerate(tables.settings[:-1]):
        basis = "assumed" if engine.assumes(setting) else tables.evidence
        step = tables.decode(index, batch, context_tokens)
        slower, energy = step.time_s / base.time_s, step.energy_j / base.energy_j
        rarely = max(slower, tables.prefill(index, prompt).time_s / base_prompt.time_s)
        forecast.append(
            replace(
                point,
                setting=setting,
                evidence="forecast",
                tokens_per_s=point.tokens_per_s / slower,
                energy_per_token_j=None if point.energy_per_token_j is None else point.energy_per_token_j * energy,
                power_w=None if point.power_w is None else point.power_w * energy / slower,
                energy_per_token_se_j=None,
                itl=_scaled(point.itl, slower, rarely),
                ttft=_scaled(point.ttft, rarely, rarely),
                end_to_end=_scaled(point.end_to_end, rarely, rarely),
                notes=(*point.notes, f"{rests_on} ({basis})"),
            )
        )
    return tuple(forecast)


def _scaled(latency: Percentiles, usual: float, rare: float) -> Percentiles:
    usually = [None if each is None else each * usual for each in (latency.mean_s, latency.p50_s)]
    rarely = [None if each is None else each * rare for each in (latency.p90_s, latency.p95_s, latency.p99_s)]
    return Percentiles(*usually, *rarely)


def _without_energy(points: Sequence[ServingPoint], bounds: Bounds, first: str, within_s: float) -> str:
    """Why nothing can be chosen where no configuration has both a latency and an energy; what its latencies alone say."""
    name = f"{called(bounds.percentile)} {LATENCY_NAMES[first]}"
    timed = [(latency, each) for each in points if (latency := bounds.latency_of(each, first)) is not None]
    if not timed:
        return f"no configuration has a {name} and an energy on record"
    kept = [(latency, each) for latency, each in timed if latency <= within_s]
    said = "no energy was measured, so the cheapest cannot be chosen: measure again with serve bench --meter"
    if not kept:
        return said
    latency_s, most = max(kept, key=lambda pair: pair[1].tokens_per_s)
    return (
        f"{said}; by latency alone {len(kept)} of {counted(len(timed), 'configuration')} meet the bound, with most tokens "
        f"per second {configuration_text(most)} ({name} {1e3 * latency_s:.3g} ms)"
    )


def _recommend_one(
    model: str, points: list[ServingPoint], bounds: Bounds, cost_of: Callable[[ServingPoint], float | None]
) -> Recommendation | Unmet:
    """The recommendation for one model, or why there is none."""
    latencies = bounds.latencies
    first, *others = latencies or {"itl": math.inf}
    within_s = latencies.get(first, math.inf)
    known = [
        (latency, cost, point)
        for point in points
        if (latency := bounds.latency_of(point, first)) is not None and (cost := cost_of(point)) is not None
    ]
    if not known:
        return Unmet(model, _without_energy(points, bounds, first, within_s))
    kept = [
        way
        for way in known
        if all((other := bounds.latency_of(way[2], name)) is not None and other <= latencies[name] for name in others)
        and (bounds.energy_per_token_j is None or (way[2].energy_per_token_j or math.inf) <= bounds.energy_per_token_j)
    ]
    if not kept:
        return Unmet(model, _what_would(known, bounds, others))
    frontier = choice(kept)
    try:
        best = frontier.least_energy(None if within_s == math.inf else within_s)
    except InfeasibleError:
        least = min(kept, key=lambda way: way[0])
        why = f"the lowest {LATENCY_NAMES[first]} is {1e3 * least[0]:.4g} ms ({configuration_text(least[2])})"
        return Unmet(model, why, least[0])
    point = _point_of(best)
    fastest = frontier.least_time()
    listed = frontier.pareto()
    looser = next(
        (each for each in listed if each.time_s > max(best.time_s, within_s) and each.energy_j < best.energy_j), None
    )
    tighter = next((each for each in reversed(list(listed)) if each.time_s < best.time_s), None)
    return Recommendation(
        point=point,
        cost=best.energy_j,
        latency_s=best.time_s,
        fastest=_point_of(fastest),
        fastest_cost=fastest.energy_j,
        price_per_s=frontier.price_of_time(within_s),
        looser=None if looser is None else Step(looser.time_s, _point_of(looser), 1 - looser.energy_j / best.energy_j),
        tighter=None if tighter is None else Step(tighter.time_s, _point_of(tighter), 1 - tighter.energy_j / best.energy_j),
        kept=sum(way[0] <= within_s for way in kept),
        frontier=tuple(_point_of(each) for each in listed),
    )


def _point_of(answer: Point) -> ServingPoint:
    point = answer.choices[0]
    assert isinstance(point, ServingPoint)
    return point


def _what_would(known: list[tuple[float, float, ServingPoint]], bounds: Bounds, others: Sequence[str]) -> str:
    """Why no configuration keeps all but the first bound, and what would."""
    parts = []
    for name in others:
        values = [value for _, _, point in known if (value := bounds.latency_of(point, name)) is not None]
        if not values:
            parts.append(f"no {called(bounds.percentile)} {LATENCY_NAMES[name]} is on record")
        elif min(values) > bounds.latencies[name]:
            parts.append(f"the lowest {LATENCY_NAMES[name]} is {1e3 * min(values):.4g} ms")
    if bounds.energy_per_token_j is not None:
        least = min(point.energy_per_token_j or math.inf for _, _, point in known)
        if least > bounds.energy_per_token_j:
            parts.append(f"the lowest energy per token is {1e3 * least:.4g} mJ")
    return ", and ".join(parts) or "no configuration meets all bounds at once; relax one"


def called(percentile: Percentile) -> str:
    """A statistic for a reader: ``median``, ``mean`` or such as ``P99``."""
    return {"p50": "median", "mean": "mean"}.get(percentile, percentile.upper())


def configuration_text(point: ServingPoint) -> str:
    """A configuration in short: ``4 × H100, batch 64``."""
    clocks = "" if point.setting.is_auto else f", {setting_text(point.setting)}"
    return f"{point.gpus} × {point.gpu}, batch {point.max_running:,}{clocks}"
