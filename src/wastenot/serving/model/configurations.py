"""Configurations of servers to choose from: read from studies and tables, narrowed down, and forecast at other clocks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.serving.model.benchmark_files import read_server_table
from wastenot.serving.model.engine_tables import OutsideProfileError
from wastenot.serving.model.profile_file import EngineProfile, read_engine
from wastenot.serving.model.recommend import with_clocks
from wastenot.serving.tables.records import ServingPoint
from wastenot.serving.tables.store import ServingStore
from wastenot.study.store import Study, open_study

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
