"""Configurations of servers: read from studies and tables, narrowed down, forecast at other clocks, and chosen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from wastenot.core.errors import BadInputError
from wastenot.core.files import PathLike
from wastenot.core.result import HasDocument, HasPage
from wastenot.core.wording import counted
from wastenot.pages.formatting import SPACE, number, quantity
from wastenot.serving.model.benchmark_files import read_server_table
from wastenot.serving.model.engine_tables import OutsideProfileError
from wastenot.serving.model.profile_file import EngineProfile, read_engine
from wastenot.serving.model.recommend import (
    LATENCY_NAMES,
    Bounds,
    Percentile,
    Prices,
    Recommendation,
    Unit,
    Unmet,
    called,
    cost_function,
    recommend as recommended,
    with_clocks,
)
from wastenot.serving.tables.records import ServingPoint
from wastenot.serving.tables.store import ServingStore
from wastenot.study.address import parse_address
from wastenot.study.store import Study, open_study

CONTEXT = 1024.0
"""Mean tokens in the cache of a request, where nothing says how many."""
_SHOWN = 8  # names in an error


def configurations_of(sources: Iterable[str | os.PathLike[str] | Study]) -> tuple[ServingPoint, ...]:
    """The configurations of all sources, in their order.

    Args:
        sources: studies of ``wastenot serve bench``, or tables of ML.ENERGY, InferenceX or AIPerf.

    Raises:
        BadInputError: a source does not exist or holds no configurations.
        StudyError: a study cannot be read.
    """
    points: list[ServingPoint] = []
    for source in sources:
        if not isinstance(source, Study):
            path = Path(source)
            if path.suffix.lower() in {".csv", ".json"}:
                points += read_server_table(path)
                continue
            if "://" not in str(source) and not path.exists():
                raise BadInputError(
                    f"{source}: does not exist; give a study of 'wastenot serve bench', or a table of ML.ENERGY"
                )
        found = ServingStore(open_study(source)).points()
        if not found:
            raise BadInputError(f"{source}: holds no measured servers; measure some with 'wastenot serve bench --study'")
        points += found
    return tuple(points)


@dataclass(frozen=True, slots=True)
class Only:
    """Which configurations are considered; ``None`` leaves none out.

    Attributes:
        model: a part of the names of models, in any case.
        gpu: models of GPUs, such as ``H100``.
        gpus: the highest number of them.
        task: or load.
    """

    model: str | None = None
    gpu: Sequence[str] | None = None
    gpus: int | None = None
    task: str | None = None

    def of(self, points: Sequence[ServingPoint]) -> tuple[ServingPoint, ...]:
        """Those of some points; all of one task.

        Raises:
            BadInputError: there are none, or they are of several tasks.
        """
        kept = tuple(points)
        wanted = {each.strip().lower() for each in self.gpu or ()}
        model = (self.model or "").lower()
        most = 0 if self.gpus is None else self.gpus
        kept = _kept("task", self.task, kept, lambda each: each.task, lambda each: each.task == self.task)
        kept = _kept("model", self.model, kept, lambda each: each.model, lambda each: model in each.model.lower())
        asked = None if self.gpu is None else ",".join(self.gpu)
        kept = _kept("gpu", asked, kept, lambda each: each.gpu, lambda each: each.gpu.lower() in wanted)
        if self.gpus is not None:
            least = min(each.gpus for each in kept)
            kept = tuple(each for each in kept if each.gpus <= most)
            if not kept:
                raise BadInputError(f"`gpus` {self.gpus}: the smallest configuration has {least}")
        tasks = dict.fromkeys(each.task for each in kept if each.is_stable)  # nothing is recommended of the others
        if len(tasks) == 1:
            return tuple(each for each in kept if each.task in tasks)
        if len(tasks) > 1:
            raise BadInputError(
                f"`task`: these are of several loads, whose tokens cost different amounts; give one of {_some(tasks)}"
            )
        return kept


def _kept(
    argument: str,
    asked: str | None,
    points: tuple[ServingPoint, ...],
    name_of: Callable[[ServingPoint], str],
    keeps: Callable[[ServingPoint], bool],
) -> tuple[ServingPoint, ...]:
    if asked is None:
        return points
    kept = tuple(each for each in points if keeps(each))
    if not kept:
        raise BadInputError(f"`{argument}` {asked}: not one of {_some(dict.fromkeys(map(name_of, points)))}")
    return kept


def _some(names: dict[str, None]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(f'"{name}"' if "," in name else name for name in listed[:_SHOWN]) + more


def at_other_clocks(
    points: Sequence[ServingPoint],
    profile: str | os.PathLike[str] | EngineProfile,
    context: float,
    *,
    assumed_clocks: bool = False,
) -> tuple[tuple[ServingPoint, ...], str]:
    """The configurations of one model at other clocks, forecast by its profile.

    Args:
        points: as measured.
        profile: of the same model, or its file.
        context: mean tokens in the cache of a request.
        assumed_clocks: also those that were neither measured nor fitted.

    Returns:
        The forecast configurations, and which of the points the profile does not cover; empty where it covers all.

    Raises:
        BadInputError: the points are of several models, or the profile is of another number of GPUs.
        OutsideProfileError: the profile covers none of them.
    """
    models = dict.fromkeys(each.model for each in points)
    if len(models) > 1:
        raise BadInputError(f"`clocks`: a profile is of one model; choose the model with `model` from {_some(models)}")
    if all(each.beside_idle_gpu for each in points):
        raise BadInputError(
            "`clocks`: the energy of these points is that of an idle simulated GPU, which says nothing of other clocks; "
            "measure beside the server's own GPUs (serve bench --device or --meter)"
        )
    read, name = (profile, "the profile") if isinstance(profile, EngineProfile) else (read_engine(profile), str(profile))
    read = read if assumed_clocks else read.within_known_clocks()
    degrees = {engine.gpus: engine for engine in read.engines}
    found: list[ServingPoint] = []
    beyond: list[OutsideProfileError] = []
    for point in points:
        if point.setting.is_auto and point.gpus in degrees:
            try:
                found += with_clocks(point, degrees[point.gpus], context)
            except OutsideProfileError as error:
                beyond.append(error)
    if not found:
        known = ", ".join(map(str, degrees))
        raise (
            beyond[0]
            if beyond
            else BadInputError(f"{name}: is for {known} GPUs; no configuration at the default clocks has as many")
        )
    if not beyond:
        return tuple(found), ""
    return tuple(found), f"{name}: {counted(len(beyond), 'configuration')} at the default clocks only: {beyond[0]}"


@dataclass(frozen=True, slots=True, eq=False)
class Recommended(HasDocument, HasPage):
    """What was asked and what came of it.

    Attributes:
        points: that there was to choose from.
        chosen: for each model that can keep the bounds, the cheapest first.
        unmet: the other models.
        bounds: that were to be kept.
        unit: of the cost.
        prices: where the unit is money.
        without_clocks: cost by model of what is chosen without forecasts of clocks, where there are any.
        sources: names of the studies and tables that the points are of.
        left_at_auto: which points were not forecast at other clocks, although that was asked for, and why; empty for none.
    """

    drawn_by: ClassVar[str] = "wastenot.serving.page.recommend_page:recommend_page"
    told_by: ClassVar[str] = "wastenot.serving.documents:recommendation_document"

    points: Sequence[ServingPoint]
    chosen: Sequence[Recommendation]
    unmet: Sequence[Unmet]
    bounds: Bounds
    unit: Unit = "token"
    prices: Prices | None = None
    without_clocks: Sequence[Recommendation] = ()
    sources: Sequence[str] = ()
    left_at_auto: str = ""

    @property
    def latency(self) -> str:
        """Name of the latency that is bounded first."""
        return next(iter(self.bounds.latencies), "itl")

    @property
    def latency_title(self) -> str:
        """The same for a reader."""
        return self.titled(self.bounds.percentile)

    def titled(self, statistic: Percentile) -> str:
        """A statistic of that latency for a reader."""
        return f"{called(statistic)} {LATENCY_NAMES[self.latency]}"

    @property
    def also(self) -> Percentile | None:
        """The statistic to show beside the bounded one, of those that are known of all that is chosen.

        The highest percentile, or the median where a high one is bounded.
        """
        rising: tuple[Percentile, ...] = ("p50", "p90", "p95", "p99")
        high = self.bounds.percentile in rising[1:]
        known = [each for each in rising if all(self.at(best.point, each) is not None for best in self.chosen)]
        others = [each for each in known if (each == "p50" if high else each in rising[1:])]
        return others[-1] if self.chosen and others else None

    @property
    def statistics(self) -> tuple[Percentile, ...]:
        """Those to show: the one that is bounded, and the other."""
        return (self.bounds.percentile,) if self.also is None else (self.bounds.percentile, self.also)

    def at(self, point: ServingPoint, statistic: Percentile) -> float | None:
        """A statistic in seconds of the latency that is bounded first."""
        return replace(self.bounds, percentile=statistic).latency_of(point, self.latency)

    @property
    def cost_title(self) -> str:
        """What is to be least."""
        if self.unit == "money":
            return f"{self.prices.currency if self.prices else ''} per million tokens".strip()
        return f"energy per {self.unit}"

    def cost_text(self, cost: float) -> str:
        """A cost with its unit."""
        return f"{number(cost, 3)}{SPACE}{self.cost_title}" if self.unit == "money" else quantity(cost, "J", 3)

    def known(self) -> list[tuple[float, float, ServingPoint]]:
        """Latency, cost and point of those of which both are known, steady states only."""
        cost_of = cost_function(self.unit, self.prices)
        return [
            (latency, cost, point)
            for point in self.points
            if point.is_stable
            and (latency := self.bounds.latency_of(point, self.latency)) is not None
            and (cost := cost_of(point)) is not None
        ]


def recommend(
    sources: PathLike | Study | Iterable[PathLike | Study],
    bounds: Bounds | None = None,
    *,
    only: Only | None = None,
    unit: Unit = "token",
    prices: Prices | None = None,
    clocks: PathLike | EngineProfile | None = None,
    context: float = CONTEXT,
    assumed_clocks: bool = False,
) -> Recommended:
    """For each model, the configuration (GPUs, batch, clocks) of least energy that keeps bounds on latency.

    Args:
        sources: studies of servers, or tables of ML.ENERGY, InferenceX or AIPerf.
        bounds: on latencies and on the energy of a token; by default none.
        only: configurations to consider.
        unit: what is to be least: the energy of a token or a request, or money.
        prices: for money.
        clocks: forecast other clocks too, by this profile of the same model.
        context: mean tokens in the cache of a request, for ``clocks``.
        assumed_clocks: with ``clocks``, also those that were neither measured nor fitted.

    Returns:
        What is chosen (``chosen``), the cheapest model first; and the models of which no configuration keeps the bounds, and
        why (``unmet``).

    Raises:
        BadInputError: a source or an argument cannot be used, or no configuration is left to choose from.
        StudyError: a study cannot be read.
    """
    if not 0.0 <= context < float("inf"):
        raise BadInputError(f"`context` {context:g}: must be a number of tokens, at least 0")
    listed = [sources] if isinstance(sources, str | os.PathLike | Study) else list(sources)
    if not listed:
        raise BadInputError("give configurations to choose from: a study of 'wastenot serve bench', or a table of ML.ENERGY")
    bounds = bounds or Bounds()
    measured = (only or Only()).of(configurations_of(listed))
    alone: tuple[Recommendation, ...] = ()
    points, left = measured, ""
    if clocks is not None:
        forecast, left = at_other_clocks(measured, clocks, context, assumed_clocks=assumed_clocks)
        alone, _ = recommended(measured, bounds, unit=unit, prices=prices)
        points += forecast
    chosen, unmet = recommended(points, bounds, unit=unit, prices=prices)
    names = [str(each) if isinstance(each, Study) else parse_address(os.fspath(each)).label for each in listed]
    return Recommended(points, chosen, unmet, bounds, unit, prices, alone, names, left)
