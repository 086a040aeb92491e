"""What the file of a scenario may say, part by part; :mod:`wastenot.serving.cluster.scenario` reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field, model_validator

from wastenot.core.documents import Finite, Name, NotNegative, Part, Positive
from wastenot.planning.objective_kinds import CLUSTERS, ClusterObjectiveKind
from wastenot.serving.cluster.model import ChangeTimes, Failure
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.model.engine import Engine, Scheduler
from wastenot.serving.model.loads import LogNormal

_Whole = Annotated[int, Field(ge=1)]
_Share = Annotated[float, Field(gt=0, le=1)]
_Told = Annotated[float, Field(ge=0, le=1)]
_Each = TypeVar("_Each")
_MOST_BURSTINESS: Final = 100.0


class ChangesPart(Part):
    """What changes of the cluster take; see :class:`~wastenot.serving.cluster.model.ChangeTimes`."""

    start_s: NotNegative | tuple[NotNegative, ...] = 35.0
    reshard_s: NotNegative = 3.0
    wake_s: NotNegative = 0.03
    off_power_w: NotNegative = 0.0
    parked_power_w: NotNegative | None = None
    start_power_w: NotNegative = 120.0
    host_power_w: NotNegative = 0.0

    def times(self, layouts: Sequence[Engine]) -> ChangeTimes:
        """For some layouts; what a parked instance draws is what an idle one does, unless it is given."""
        start = self.start_s if isinstance(self.start_s, tuple) else (self.start_s,) * len(layouts)
        values = {name: getattr(self, name) for name in type(self).model_fields} | {"start_s": start}
        if self.parked_power_w is None:
            values["parked_power_w"] = layouts[0].idle_gpu_w
        return ChangeTimes(**values)


class ClusterPart(Part):
    """GPUs and the engines that can run on them.

    With ``assumed_clocks``, policies are also run with clocks at which what steps cost is assumed. ``idle_power_w`` is
    of a GPU with a process that has nothing to do; by default what the engines' profiles say.
    """

    engines: Name | tuple[Name, ...]
    hosts: _Whole
    gpus_per_host: _Whole = 8
    degrees: tuple[_Whole, ...] | None = None
    step_tokens: _Whole | tuple[_Whole, ...] | None = None
    scheduler: Scheduler | None = None
    assumed_clocks: bool = False
    idle_power_w: NotNegative | None = None
    changes: ChangesPart = ChangesPart()


class PredictorPart(Part):
    """How well the kinds of answers (short, middle, long) are known before they are made.

    ``right`` is the share of requests whose kind is told right; the others are taken for a neighbouring kind. Instead of it,
    ``confusion`` has a row for each true kind: the shares that are told to be short, middle and long. With neither, policies
    know each answer's length.
    """

    right: _Share = 1.0
    confusion: tuple[tuple[_Told, _Told, _Told], tuple[_Told, _Told, _Told], tuple[_Told, _Told, _Told]] | None = None

    @model_validator(mode="after")
    def _sums(self) -> PredictorPart:
        for row, shares in enumerate(self.confusion or (), 1):
            if not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
                raise ValueError(f"confusion: row {row} sums to {sum(shares):g}; it must sum to 1")
        if self.confusion is not None and self.right < 1.0:
            raise ValueError("confusion: says the same as 'right'; give only one of them")
        return self


class LengthsPart(Part):
    """Log-normal lengths, by their median or by their mean; see :class:`~wastenot.serving.model.loads.LogNormal`."""

    median: Positive
    sigma: NotNegative = 0.0
    most: _Whole = 8192

    @model_validator(mode="before")
    @classmethod
    def _from_mean(cls, given: Any) -> Any:
        """Of log-normal lengths the median is ``mean / exp(sigma² / 2)``."""
        if not (isinstance(given, dict) and "mean" in given):
            return given
        if "median" in given:
            raise ValueError("give 'median' or 'mean', not both")
        rest = dict(given)
        try:
            median = float(rest.pop("mean")) / math.exp(0.5 * float(rest.get("sigma", 0.0)) ** 2)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError("'mean' and 'sigma' must be numbers, such as mean = 900.0, sigma = 1.0") from error
        if not median > 0.0:
            raise ValueError("'mean' must be above 0")
        return {"median": median, **rest}

    def lengths(self) -> LogNormal:
        """To draw from."""
        return LogNormal(self.median, self.sigma, self.most)


class _Traffic(Part):
    name: Name | None = None
    failures: tuple[Failure, ...] = ()

    @property
    def label(self) -> str:
        """How tables and errors name it."""
        return self.name or str(getattr(self, "kind", "traffic"))

    @property
    def files(self) -> dict[str, str]:
        """Files that it names, by their key."""
        return {key: name for key in ("file", "rates", "lengths") if (name := getattr(self, key, None)) is not None}


_MOST_REQUESTS: Final = 1e8
"""Of one traffic: some gigabytes of them."""

_Rate = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
"""Requests a second; no cluster serves more."""


class TracePart(_Traffic):
    """A file of requests, as it is or at another rate.

    Policies know its first ``history_s``, by default a sixth of it, and are judged on the rest. With ``prefix_blocks``, what
    prompts share with earlier ones is in a cache of this many blocks; see :func:`~wastenot.serving.model.traces.read_trace`.
    """

    kind: Literal["trace"]
    file: Name
    rate_per_s: _Rate | None = None
    history_s: Positive | None = None
    duration_s: Positive | None = None
    lenient: bool = False
    prefix_blocks: _Whole | None = None


class CrowdPart(Part):
    """A flash crowd: the rate rises evenly to ``factor`` times, stays there, and falls back at once."""

    factor: Annotated[float, Field(gt=1, allow_inf_nan=False)]
    begin_s: NotNegative
    rise_s: Positive = 60.0
    length_s: Positive

    @model_validator(mode="after")
    def _rises_first(self) -> CrowdPart:
        if self.length_s < self.rise_s:
            raise ValueError("length_s: must be at least rise_s")
        return self


class PoissonPart(_Traffic):
    """Requests that come independently of one another, or with gaps of another variation.

    ``burstiness`` is the coefficient of variation of the gaps, which are gamma-distributed: 1 for Poisson arrivals.
    """

    kind: Literal["poisson"]
    rate_per_s: _Rate
    duration_s: Positive
    burstiness: Annotated[float, Field(gt=0, le=_MOST_BURSTINESS, allow_inf_nan=False)] = 1.0
    prompt_tokens: LengthsPart = LengthsPart(median=600.0, sigma=1.0)
    output_tokens: LengthsPart = LengthsPart(median=150.0, sigma=0.8, most=2048)
    crowds: tuple[CrowdPart, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> PoissonPart:
        requests = self.rate_per_s * self.duration_s
        if requests > _MOST_REQUESTS:
            raise ValueError(f"rate_per_s: asks for {requests:.3g} requests; at most {_MOST_REQUESTS:.0e} can be simulated")
        return self


class CurvePart(_Traffic):
    """Synthetic requests drawn by a curve of rates over a day or a week, and by distributions of lengths.

    ``rates`` has times and requests a minute, ``lengths`` the columns service, field, cdf_percent and tokens. What comes
    before ``begin_s`` is known to policies; where that is less than a week, so are ``history_weeks`` before it, made up from
    the curve: each day has another level (log-normal, ``day_sigma``), and slots vary about it (``slot_sigma``).
    """

    kind: Literal["curve"]
    rates: Name
    lengths: Name
    service: Name
    prompt_field: Name = "ContextTokens"
    output_field: Name = "GeneratedTokens"
    rank_correlation: Annotated[float, Field(ge=-1, le=1)] = 0.0
    rate_per_s: _Rate | None = None
    begin_s: NotNegative = 0.0
    duration_s: Positive | None = None
    history_weeks: _Whole = 2
    day_sigma: NotNegative = 0.1
    slot_sigma: NotNegative = 0.05
    crowds: tuple[CrowdPart, ...] = ()


TrafficPart = Annotated[TracePart | PoissonPart | CurvePart, Field(discriminator="kind")]
KINDS: Final = ("trace", "poisson", "curve")


class ObjectivePart(Part):
    """What a kilowatt-hour costs, and what controllers minimise.

    Costs are a number, 24 by hour of the day, 168 by hour of the week, or a file of times and costs.
    """

    minimise: ClusterObjectiveKind = "energy"
    price_per_kwh: Finite | tuple[Finite, ...] | Name | None = None
    currency: str = ""
    carbon_g_per_kwh: NotNegative | tuple[NotNegative, ...] | Name | None = None
    begin_hour: NotNegative = 0.0

    @property
    def given(self) -> dict[ClusterObjectiveKind, float | tuple[float, ...] | str]:
        """What costs are there, by the name of what may be minimised."""
        costs = {name: getattr(self, each.per_kwh) for name, each in CLUSTERS.items() if each.per_kwh is not None}
        return {name: cost for name, cost in costs.items() if cost is not None}

    @model_validator(mode="after")
    def _known(self) -> ObjectivePart:
        if self.minimise != "energy" and self.minimise not in self.given:
            raise ValueError(f"minimise: give {CLUSTERS[self.minimise].per_kwh} for the {self.minimise} to be minimised")
        for name, each in self.given.items():
            if isinstance(each, tuple) and len(each) not in (24, 168):
                raise ValueError(
                    f"{CLUSTERS[name].per_kwh}: {len(each)} values; give one, 24 by hour of the day, 168 by hour of the "
                    "week, or a file"
                )
        return self


class RunPart(Part):
    """What is compared, and how often."""

    policies: Annotated[tuple[Name, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    router: Literal["least-requests", "power-of-two", "least-tokens", "least-energy"] = "least-requests"
    attain: _Share = 0.99
    head_room: NotNegative = 0.2

    @model_validator(mode="after")
    def _once(self) -> RunPart:
        for name, given in (("policies", self.policies), ("seeds", self.seeds)):
            twice = first_twice(given)
            if twice is not None:
                raise ValueError(f"{name}: {twice!r} appears twice")
        return self


class ScenarioPart(Part):
    """The file."""

    name: Name | None = None
    cluster: ClusterPart
    deadlines: Deadlines = LITERATURE
    predictor: PredictorPart = PredictorPart()
    objective: ObjectivePart = ObjectivePart()
    traffic: Annotated[tuple[TrafficPart, ...], Field(min_length=1)]
    run: RunPart


def first_twice(given: Sequence[_Each]) -> _Each | None:
    """The first of some that stands among them again; ``None`` where none does."""
    return next((each for place, each in enumerate(given) if each in given[:place]), None)
