"""How verbs speak: results to stdout, messages to stderr."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """A console on stdout; tables are not squeezed where the output is not a terminal."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 120)


def say(message: str) -> None:
    """A message for a person, on stderr."""
    print(message, file=sys.stderr)


def print_json(document: object) -> None:
    """One JSON document on stdout; a number that JSON cannot hold is null."""
    print(json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False))


def as_values(value: object) -> Any:
    """A dataclass or a part of a file, or anything made of them, as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_values(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, (list, tuple)):
        return [as_values(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
