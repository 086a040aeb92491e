"""Files of results by what they hold: how each is shown in a terminal, and which page it makes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wastenot.core.errors import BadInputError
from wastenot.core.result import HasPage, by_name

if TYPE_CHECKING:
    from rich.console import RenderableType

_SCHEMA = re.compile(rb'"schema"\s*:\s*"wastenot\.([\w-]+)/\d+"')
_HEAD = 65536  # bytes in which a document names its schema: it is the first key of what is written here


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of result.

    Attributes:
        what: it is, in words.
        text: for a terminal, of a file; whether in full.
        reader: of a file, as ``package.module:function``; ``None`` where such a result has no page, or none without more
            than the file.
    """

    what: str
    text: Callable[[Path, bool], RenderableType]
    reader: str | None = None

    def read(self, path: Path) -> HasPage:
        """A file, as something that has a page."""
        assert self.reader is not None
        found: HasPage = by_name(self.reader)(path)
        return found


def kind_of(path: Path) -> str:
    """Which of :data:`KINDS` a file holds.

    Raises:
        BadInputError: it cannot be read, or is none of them.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror or error}") from error
    found = _SCHEMA.search(head)
    kind = "profile" if head.startswith(b"PAR1") else found[1].decode() if found else None
    if kind not in KINDS:
        of = "has no wastenot schema" if kind is None else f"holds something that is not kept in files (wastenot.{kind})"
        known = ", ".join(each.what for each in KINDS.values())
        raise BadInputError(f"{path}: {of}; what can be shown is a study (FILE.db or a URL), or the file of {known}")
    return kind


def is_study(source: str) -> bool:
    """Whether something names a study: a database's URL, or a file of SQLite, there or not yet."""
    if "://" in source or source.endswith(".db"):
        return True
    try:
        with Path(source).open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def _plan(path: Path, in_full: bool) -> RenderableType:
    from wastenot.kernels.cli.plan_text import plan_text
    from wastenot.kernels.page.provenance import Files
    from wastenot.planning.plan_file import read_plan
    from wastenot.terminal.options import PriceOptions

    return plan_text(read_plan(path), PriceOptions().price(), Files(plan=path), in_full=in_full)


def _engine(path: Path, _: bool) -> RenderableType:
    from wastenot.serving.cli.engine import engine_text
    from wastenot.serving.model.operating_points import operating_points, prefill_points, usual_context
    from wastenot.serving.model.profile_file import read_engine

    profile = read_engine(path)
    context = usual_context(profile)
    points = operating_points(profile, context=context)
    return engine_text(profile, points, prefill_points(profile), context)


def _sensors(path: Path, _: bool) -> RenderableType:
    from wastenot.cli.devices import sensor_lines, sensor_notes
    from wastenot.meters.sensors.identity import read_sensors
    from wastenot.terminal.tables import Group, Paragraph, Text

    sensors = read_sensors(path)
    notes = (f"note: {note}" for note in sensor_notes(sensors))
    return Group(*(Paragraph(Text(line)) for line in (*sensor_lines(sensors), *notes)))


def _workload(path: Path, _: bool) -> RenderableType:
    from wastenot.cli.workloads import workload_text
    from wastenot.meters.tasks import find_workload

    return workload_text(find_workload(str(path)))


def _in_words(reader: str) -> Callable[[Path, bool], RenderableType]:
    """What a page says before its figures, as text."""

    def text(path: Path, _: bool) -> RenderableType:
        from wastenot.terminal.panels import page_text

        return page_text(by_name(reader)(path).drawn())

    return text


def _told(reader: str, teller: str) -> Callable[[Path, bool], RenderableType]:
    """A file as text, by the functions of these names."""

    def text(path: Path, _: bool) -> RenderableType:
        told: RenderableType = by_name(teller)(by_name(reader)(path))
        return told

    return text


_PIPELINE = "wastenot.pipelines.plan.plan_file:read_pipeline_plan"
_RUN = "wastenot.control.status:read_summary"
_PROFILE = "wastenot.profiles.profile_file:read_profile"
_FORECAST = "wastenot.kernels.forecast.result:read_forecast"
_LATENCY = "wastenot.planning.latency:read_latency"

KINDS = {
    "plan": Kind("a plan", _plan),
    "pipeline": Kind("a pipeline's plan", _in_words(_PIPELINE), _PIPELINE),
    "apply": Kind("a run under a plan", _in_words(_RUN), _RUN),
    "profile": Kind("a power profile", _told(_PROFILE, "wastenot.profiles.cli:profile_text"), _PROFILE),
    "engine": Kind("an engine's profile", _engine, "wastenot.serving.model.profile_file:read_engine"),
    "forecast": Kind("a forecast", _told(_FORECAST, "wastenot.kernels.cli.forecast:forecast_text"), _FORECAST),
    "latency": Kind("switching latencies", _told(_LATENCY, "wastenot.kernels.cli.latency:latency_text"), _LATENCY),
    "sensors": Kind("sensor properties", _sensors),
    "workload": Kind("a captured workload", _workload),
}
"""By the name in the file's schema; a plan's page needs its study, too."""
