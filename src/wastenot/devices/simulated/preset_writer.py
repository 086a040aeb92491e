"""Presets as TOML that people can read and edit; the standard library reads TOML but does not write it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from wastenot.devices.simulated.preset import Preset

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def preset_toml(preset: Preset) -> str:
    """The text of a preset's file; :func:`parse_preset` gives the same preset back, every number as it was."""
    document = preset.model_dump(by_alias=True, exclude_none=True)
    if not document["clocks"]["moved"]:
        del document["clocks"]["moved"]
    document["dynamics"] = preset.dynamics.model_dump(exclude_defaults=True)
    return "\n".join(_table(document, ())) + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Lines of a table: its own values, then the tables in it."""
    own = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if path and (own or not table):
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in own.items():
        yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping) and (value or path):
            yield from _table(value, (*path, key))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    # JSON's strings are TOML's, but for the one control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value)
