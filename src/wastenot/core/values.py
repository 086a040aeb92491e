"""What commands and functions return, as JSON values and as text."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any


def document_of(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a command returns, after the name of its schema: that of the values, or ``wastenot.KIND/1`` if they name none.

    Plans, profiles and other files that are read again name theirs. ``docs/json.md`` lists all.
    """
    return {"schema": values.get("schema", f"wastenot.{kind}/1"), **values}


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
    if isinstance(value, Mapping):
        return {key: as_values(item) for key, item in value.items()}
    return value.isoformat() if isinstance(value, datetime) else value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
