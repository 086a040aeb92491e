"""Engines' profiles as JSON: one model on one device, an engine for each parallel degree, with errors and caveats.

{"schema": "wastenot.engine/1", "provenance": {...}, "model": ..., "device": ..., "engines": [{"gpus": 1, "tables": {...}}]}

Cells of the tables that are not known are null.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field, model_validator

from wastenot.core.arrays import FloatArray
from wastenot.core.documents import Finite, NotNegative, Part, Positive, read_document
from wastenot.core.errors import BadInputError
from wastenot.core.files import write_text
from wastenot.core.result import HasPage
from wastenot.core.samples import file_named
from wastenot.core.setting import Setting
from wastenot.core.version import own_version
from wastenot.devices.simulated.basis import assumed_below_mhz
from wastenot.serving.model.engine import Engine, Scheduler
from wastenot.serving.model.engine_tables import EngineTables

SCHEMA: Final = "wastenot.engine/1"
_REMEDY: Final = "make a profile with 'wastenot serve profile --out'"

_Whole = Annotated[int, Field(ge=1)]

Quantity = Literal["prefill time", "prefill power", "decode time", "decode power"]


@dataclass(frozen=True, slots=True)
class StatedError:
    """How far a profile is from measurements.

    Attributes:
        quantity: of which.
        gpus: parallel degree.
        mean: of absolute relative differences.
        largest: of these.
        points: how many.
        judged_by: where the measurements come from, such as ``steps that were held out``.
    """

    quantity: Quantity
    gpus: _Whole
    mean: Finite
    largest: Finite
    points: _Whole
    judged_by: str


@dataclass(frozen=True, slots=True, eq=False)
class EngineProfile(HasPage):
    """What is known of a model on a device: an engine for each parallel degree.

    Attributes:
        engines: by rising parallel degree; their ``model`` and ``device`` are the same.
        errors: of their tables, where they were judged by measurements.
        notes: caveats for the reader.
    """

    drawn_by: ClassVar[str] = "wastenot.serving.page.engine_page:engine_page"

    engines: tuple[Engine, ...]
    errors: tuple[StatedError, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """The model served."""
        return self.engines[0].model

    @property
    def device(self) -> str:
        """The device that serves it."""
        return self.engines[0].device

    def engine(self, gpus: int | None = None) -> Engine:
        """The engine of one parallel degree; by default the least.

        Raises:
            BadInputError: there is none of that degree.
        """
        for each in self.engines:
            if gpus is None or each.gpus == gpus:
                return each
        degrees = ", ".join(str(each.gpus) for each in self.engines)
        raise BadInputError(f"`gpus` {gpus}: this profile has no such parallel degree; there are: {degrees}")

    @property
    def assumed_below_mhz(self) -> float | None:
        """The core clock below which steps of any of the engines are assumed."""
        return max((each.assumed_below_mhz for each in self.engines if each.assumed_below_mhz is not None), default=None)

    def within_known_clocks(self) -> EngineProfile:
        """The same at only those clocks that were measured or fitted; see :meth:`Engine.within_known_clocks`."""
        return replace(self, engines=tuple(each.within_known_clocks() for each in self.engines))

    def write(self, path: str | os.PathLike[str], *, command: str = "") -> None:
        """Write the profile; see :func:`write_engine`."""
        write_engine(self, path, command=command)


def engine_document(profile: EngineProfile, command: str = "") -> dict[str, Any]:
    """A profile as JSON values.

    Args:
        profile: to describe.
        command: that made it.
    """
    return {
        "schema": SCHEMA,
        "provenance": {
            "wastenot": own_version(),
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command,
        },
        "model": profile.model,
        "device": profile.device,
        "engines": [_engine_values(each) for each in profile.engines],
        "errors": [asdict(each) for each in profile.errors],
        "notes": list(profile.notes),
    }


def write_engine(profile: EngineProfile, path: str | os.PathLike[str], *, command: str = "") -> None:
    """Write a profile; reading it back gives the same.

    Raises:
        BadInputError: the file cannot be written.
    """
    text = json.dumps(engine_document(profile, command), ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def read_engine(path: str | os.PathLike[str]) -> EngineProfile:
    """Read a profile that :func:`write_engine` wrote, or the sample ``sample:engine.json``.

    Raises:
        BadInputError: it cannot be read or is not such a file; names what is wrong and where.
    """
    content = read_document(file_named(path), _Document, _REMEDY).content
    return EngineProfile(
        tuple(each.engine(content.model, content.device) for each in content.engines), content.errors, content.notes
    )


_GRIDS: Final = (
    ("prefill_time_s", "prefill_tokens", "past_tokens"),
    ("prefill_energy_j", "prefill_tokens", "past_tokens"),
    ("decode_time_s", "batches", "context_tokens"),
    ("decode_energy_j", "batches", "context_tokens"),
)
_AXES: Final = ("prefill_tokens", "past_tokens", "batches", "context_tokens")
_OWN: Final = tuple(name for name in Engine.__dataclass_fields__ if name not in ("tables", "model", "device"))


def _engine_values(engine: Engine) -> dict[str, Any]:
    tables = engine.tables
    values: dict[str, Any] = {name: getattr(engine, name) for name in _OWN}
    if engine.scheduler == Scheduler.FCFS:
        del values["scheduler"]  # so that versions before there were any can read the file
    if engine.limit_w is None:
        del values["limit_w"]
    if not engine.launch_s and not engine.graph_launch_s:
        for name in ("launch_s", "graph_launch_s", "most_graph_tokens"):
            del values[name]
    values["tables"] = {
        "source": tables.source,
        "evidence": tables.evidence,
        "settings": [{name: getattr(each, name) for name in _Setting.model_fields} for each in tables.settings],
        **{name: getattr(tables, name).tolist() for name in (*_AXES, "idle_power_w")},
        **{name: _with_null(getattr(tables, name).tolist()) for name, _, _ in _GRIDS},
    }
    return values


def _with_null(value: Any) -> Any:
    """Nested lists with null for NaN."""
    if isinstance(value, list):
        return [_with_null(item) for item in value]
    return None if value != value else value  # noqa: PLR0124 - NaN alone differs from itself


class _Provenance(Part):
    wastenot: str
    made_at: str
    command: str


class _Setting(Part):
    core_mhz: Positive | None
    memory_mhz: Positive | None
    power_limit_w: Positive | None


_Axis = Annotated[tuple[NotNegative, ...], Field(min_length=1)]
_Grid = Annotated[tuple[tuple[tuple[Positive | None, ...], ...], ...], Field(min_length=1)]


class _Tables(Part):
    source: Literal["measured", "fitted", "kernels"]
    evidence: Literal["measured", "simulated", "forecast"]
    settings: Annotated[tuple[_Setting, ...], Field(min_length=1)]
    prefill_tokens: _Axis
    past_tokens: _Axis
    batches: _Axis
    context_tokens: _Axis
    idle_power_w: tuple[NotNegative, ...]
    prefill_time_s: _Grid
    prefill_energy_j: _Grid
    decode_time_s: _Grid
    decode_energy_j: _Grid

    @model_validator(mode="after")
    def _fits_together(self) -> _Tables:
        for name in _AXES:
            knots = getattr(self, name)
            if any(after <= before for before, after in pairwise(knots)):
                raise ValueError(f"{name}: is not ascending")
        if len(self.idle_power_w) != len(self.settings):
            raise ValueError(f"idle_power_w: {len(self.idle_power_w)} values for {len(self.settings)} settings")
        for name, rows, columns in _GRIDS:
            shape = (len(self.settings), len(getattr(self, rows)), len(getattr(self, columns)))
            grid = getattr(self, name)
            if len(grid) != shape[0] or any(len(plane) != shape[1] for plane in grid):
                raise ValueError(f"{name}: must be {shape[0]} settings of {shape[1]} {rows}")
            if any(len(row) != shape[2] for plane in grid for row in plane):
                raise ValueError(f"{name}: each row must have {shape[2]} values, one for each of {columns}")
        for time, energy in (("prefill_time_s", "prefill_energy_j"), ("decode_time_s", "decode_energy_j")):
            if not np.array_equal(np.isnan(_array(getattr(self, time))), np.isnan(_array(getattr(self, energy)))):
                raise ValueError(f"{energy}: is null in other places than {time}")
        return self

    def tables(self) -> EngineTables:
        return EngineTables(
            settings=tuple(Setting(**each.model_dump()) for each in self.settings),
            source=self.source,
            evidence=self.evidence,
            **{name: _array(getattr(self, name)) for name in (*_AXES, "idle_power_w", *(grid for grid, _, _ in _GRIDS))},
        )


def _array(values: Any) -> FloatArray:
    return np.array(values, dtype=np.float64)  # None becomes NaN


class _Engine(Part):
    tables: _Tables
    cache_blocks: _Whole
    block_tokens: _Whole
    most_running: _Whole
    most_step_tokens: _Whole
    chunked: bool
    switch_s: NotNegative
    overhead_s: NotNegative
    launch_s: NotNegative = 0.0
    graph_launch_s: NotNegative = 0.0
    most_graph_tokens: _Whole = 512
    limit_w: Positive | None = None
    gpus: _Whole
    assumed_below_mhz: Positive | None = None
    scheduler: Scheduler = Scheduler.FCFS

    def engine(self, model: str, device: str) -> Engine:
        own = {name: getattr(self, name) for name in _OWN}
        if "assumed_below_mhz" not in self.model_fields_set:  # written by an earlier version
            own["assumed_below_mhz"] = assumed_below_mhz(device)
        return Engine(**own | {"tables": self.tables.tables(), "model": model, "device": device})


class _Document(Part):
    schema_: Literal["wastenot.engine/1"] = Field(alias="schema")
    provenance: _Provenance
    model: str
    device: str
    engines: Annotated[tuple[_Engine, ...], Field(min_length=1)]
    errors: tuple[StatedError, ...]
    notes: tuple[str, ...]

    @model_validator(mode="after")
    def _by_rising_degree(self) -> _Document:
        degrees = [each.gpus for each in self.engines]
        if degrees != sorted(set(degrees)):
            raise ValueError(f"engines: parallel degrees {degrees} are not ascending")
        return self
