"""Results go to stdout, messages to stderr."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """A console on stdout; 120 columns wide unless the output is a terminal."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 120)


def say(message: str) -> None:
    """Print a message for the user on stderr."""
    print(message, file=sys.stderr)


def typed_command(study: str) -> str:
    """The command as it was typed, for a study to remember; of the study's own address only what may be shown."""
    from wastenot.study.database import parse_address

    shown = parse_address(study).label
    return shlex.join(["wastenot", *(argument.replace(study, shown) for argument in sys.argv[1:])])


def print_json(verb: str, values: Mapping[str, Any]) -> None:
    """Print what a verb returns as one JSON document on stdout."""
    print(json_text(document_of(verb, values)))


def document_of(verb: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a verb returns, after the name of its schema: that of the values, or ``wastenot.VERB/1`` if they name none.

    Plans, profiles and other files that are read again name theirs. ``docs/json.md`` lists all.
    """
    return {"schema": values.get("schema", f"wastenot.{verb}/1"), **values}


def json_text(document: object) -> str:
    """A JSON document; a number that JSON cannot represent is null."""
    return json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False)


def as_values(value: object) -> Any:
    """Dataclasses and pydantic models, and whatever is made of them, as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_values(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, (list, tuple)):
        return [as_values(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
