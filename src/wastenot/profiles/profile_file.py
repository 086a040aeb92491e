"""Power profiles as Parquet: a row for every reading, and everything else as JSON in the file's metadata.

channel,run,golden,moment_s,unsynchronised_s,unit,share,power_w     wastenot.profile = {"schema": "wastenot.profile/1"}

Polars is imported only when a file is written or read, so that measuring does not need it.
"""

from __future__ import annotations

import io
import json
import math
import os
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, get_type_hints

import numpy as np
from pydantic import Field, create_model, model_validator

from wastenot.core.documents import Part, parse_document
from wastenot.core.errors import BadInputError
from wastenot.core.files import write_bytes
from wastenot.core.version import own_version
from wastenot.profiles.result import Logged, Profile
from wastenot.study.parquet_file import polars_or_refuse

SCHEMA: Final = "wastenot.profile/1"
KEY: Final = "wastenot.profile"
_NUMBERS: Final = ("moment_s", "unsynchronised_s", "share", "power_w")
_WHOLE: Final = ("run", "unit")
_COLUMNS: Final = ("channel", "run", "golden", "moment_s", "unsynchronised_s", "unit", "share", "power_w")
_MAGIC: Final = b"PAR1"
_REMEDY: Final = "make it again with 'wastenot profile run --out'"


def profile_document(profile: Profile, command: str = "") -> dict[str, Any]:
    """All of a profile except its readings, as JSON values; what is not known is null.

    Args:
        profile: to describe.
        command: that made it.
    """
    values = asdict(profile)
    del values["logged"]
    values = _plain(values)
    for state in values["states"]:
        state["energy_j"] = state["time_s"] * state["channels"]["total"]["mean_w"] if "total" in state["channels"] else None
    provenance = {
        "wastenot": own_version(),
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
    }
    document: dict[str, Any] = {"schema": SCHEMA, "provenance": provenance} | values
    return document


def write_profile(profile: Profile, path: str | os.PathLike[str], *, command: str = "") -> None:
    """Write a profile; a reader never sees half of it, and reading it back gives the same.

    Args:
        profile: to write.
        path: the file to make or replace.
        command: that made it, kept with it.

    Raises:
        BadInputError: the file cannot be written.
        MissingExtraError: Polars is not installed.
    """
    pl = polars_or_refuse()
    logged = profile.logged
    names = np.array([one.channel.name for one in profile.channels])
    frame = pl.DataFrame(
        {
            "channel": pl.Series(names[logged.channel].tolist(), dtype=pl.String),
            "run": logged.run.astype(np.int32),
            "golden": logged.golden.astype(bool),
            "moment_s": logged.moment_s,
            "unsynchronised_s": logged.unsynchronised_s,
            "unit": logged.unit.astype(np.int32),
            "share": logged.share,
            "power_w": logged.power_w,
        }
    )
    text = json.dumps(profile_document(profile, command), ensure_ascii=False, allow_nan=False)
    stream = io.BytesIO()
    frame.write_parquet(stream, metadata={KEY: text})
    write_bytes(path, stream.getvalue())


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile that :func:`write_profile` wrote.

    Args:
        path: of the file.

    Raises:
        BadInputError: it cannot be read or is not such a file; names what is wrong and where.
        MissingExtraError: Polars is not installed.
    """
    pl = polars_or_refuse()
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror or error}; {_REMEDY}") from error
    if len(content) < 12 or content[:4] != _MAGIC or content[-4:] != _MAGIC:
        raise BadInputError(f"{path}: this is not a complete Parquet file; {_REMEDY}")
    try:
        metadata = pl.read_parquet_metadata(io.BytesIO(content))
        frame = pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise BadInputError(
            f"{path}: this Parquet file cannot be read ({str(error).partition(chr(10))[0]}); {_REMEDY}"
        ) from error
    if KEY not in metadata:
        raise BadInputError(f"{path}: metadata: there is no {KEY}, so this is not a power profile; {_REMEDY}")
    document = parse_document(metadata[KEY], _ProfileDocument, _REMEDY, f"{path}: metadata {KEY}").content
    return document.profile(_logged(frame, document, str(path)))


def _logged(frame: Any, document: Any, path: str) -> Logged:
    """The readings, checked."""
    pl = polars_or_refuse()

    def refuse(column: str, row: int, what: str) -> BadInputError:
        return BadInputError(f"{path}: row {row + 1}: {column}: {what}; {_REMEDY}")

    missing = [name for name in _COLUMNS if name not in frame.columns]
    if missing:
        raise BadInputError(f"{path}: header: there is no column {', '.join(missing)}; {_REMEDY}")
    kinds = (
        dict.fromkeys(_NUMBERS, pl.Float64) | dict.fromkeys(_WHOLE, pl.Int32) | {"channel": pl.String, "golden": pl.Boolean}
    )
    for name, kind in kinds.items():
        if frame[name].dtype != kind:
            raise refuse(name, 0, f"is {frame[name].dtype}; must be {kind()}")
        if frame[name].null_count():
            raise refuse(name, int(frame[name].is_null().arg_true()[0]), "is empty")
    for name in _NUMBERS:
        wrong = np.flatnonzero(~np.isfinite(frame[name].to_numpy()))
        if len(wrong):
            raise refuse(name, int(wrong[0]), "is not a finite number")
    for name, least, most in (("run", 0, document.runs - 1), ("unit", 0, len(document.unit_begin_s)), ("share", 0.0, 1.0)):
        values = frame[name].to_numpy()
        wrong = np.flatnonzero((values < least) | (values > most))
        if len(wrong):
            raise refuse(name, int(wrong[0]), f"is {values[wrong[0]]:g}; must be {least:g} to {most:g}")
    index_of = {one.channel.name: index for index, one in enumerate(document.channels)}
    channel = np.array([index_of.get(name, -1) for name in frame["channel"].to_list()], dtype=np.intp)
    if len(unknown := np.flatnonzero(channel < 0)):
        row = int(unknown[0])
        raise refuse("channel", row, f"is '{frame['channel'][row]}'; must be one of {', '.join(index_of)}")
    return Logged(
        channel=channel,
        golden=np.asarray(frame["golden"].to_numpy(), dtype=np.intp),
        run=np.asarray(frame["run"].to_numpy(), dtype=np.intp),
        unit=np.asarray(frame["unit"].to_numpy(), dtype=np.intp),
        moment_s=np.array(frame["moment_s"].to_numpy(), dtype=np.float64),
        unsynchronised_s=np.array(frame["unsynchronised_s"].to_numpy(), dtype=np.float64),
        share=np.array(frame["share"].to_numpy(), dtype=np.float64),
        power_w=np.array(frame["power_w"].to_numpy(), dtype=np.float64),
    )


def _plain(value: Any) -> Any:
    """As JSON values: arrays as lists, NaN as null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Provenance(Part):
    wastenot: str
    made_at: str
    command: str


class _Document(Part):
    """All of a profile except its readings: below, the fields of :class:`Profile` join these."""

    schema_: Literal["wastenot.profile/1"] = Field(alias="schema")
    provenance: _Provenance

    @model_validator(mode="after")
    def _fits_together(self: Any) -> Any:
        if not len(self.unit_begin_s) == len(self.unit_time_s) > 0:
            raise ValueError(f"{len(self.unit_begin_s)} begins of units, but {len(self.unit_time_s)} times")
        if self.unit_counted_mhz is not None and len(self.unit_counted_mhz) != len(self.unit_begin_s):
            raise ValueError(f"{len(self.unit_begin_s)} begins of units, but {len(self.unit_counted_mhz)} core clocks")
        names = [one.channel.name for one in self.channels]
        if len(set(names)) != len(names):
            raise ValueError("two channels have the same name")
        for state in self.states:
            if state.unit > len(self.unit_begin_s):
                raise ValueError(f"state '{state.name}' is of execution {state.unit}; there are {len(self.unit_begin_s)}")
            if unknown := set(state.channels) - set(names):
                raise ValueError(f"state '{state.name}' has power of '{min(unknown)}', which is not a channel")
        return self

    def profile(self, logged: Logged) -> Profile:
        """The profile, with its readings."""
        return Profile(**{name: getattr(self, name) for name in _FIELDS}, logged=logged)


_FIELDS: Final = tuple(each.name for each in fields(Profile) if each.name != "logged")
_TYPES: Final[dict[str, Any]] = get_type_hints(Profile, include_extras=True)
_LATER: Final = {"unit_counted_mhz": None}  # what a field is in files that were written before it was there
_IN_FILE: Final[dict[str, Any]] = {
    name: (_TYPES[name], _LATER[name]) if name in _LATER else _TYPES[name] for name in _FIELDS
}
_ProfileDocument: Final = create_model("_ProfileDocument", __base__=_Document, **_IN_FILE)
