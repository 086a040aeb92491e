"""JSON Schemas of what ``--json`` prints, inferred from what is printed while tests run.

    WASTENOT_DOCUMENTS=FOLDER make test-all
    python -m docs.make.printed FOLDER

The second command adds to ``docs/schemas/printed`` what those documents have and the schemas lack. It removes nothing: nothing
goes from a document without a new number in its ``schema``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from docs.make.stability import DIALECT
from testbed.printed import PRINTED, is_document, path_of

_KEY = re.compile(r"[a-z][a-z0-9_]*")
_TYPES = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}


def schema_of(value: Any) -> dict[str, Any]:
    """The schema of a value; a document within another is referred to."""
    if isinstance(value, list):
        return {"type": "array", "items": reduce(merged, map(schema_of, value), {})}
    if not isinstance(value, dict):
        return {"type": _TYPES[type(value)]}
    if is_document(value):
        return {"anyOf": [{"$ref": Path(os.path.relpath(path_of(value["schema"]), PRINTED)).as_posix()}]}
    return _object({name: schema_of(part) for name, part in value.items()})


def _object(parts: Mapping[str, Any]) -> dict[str, Any]:
    if not all(map(_KEY.fullmatch, parts)):  # names of GPUs, clocks, ...
        return {"type": "object", "additionalProperties": reduce(merged, parts.values(), {})}
    return {"type": "object", "properties": {**parts}, "required": sorted(parts)}


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The narrowest schema of all that is valid by one of two; if one of these is of objects whose keys are names, it is, too."""
    both = [each for each in (one, other) if each]
    if len(both) < 2:
        return {**one, **other}
    if refs := {part["$ref"] for each in both for part in each.get("anyOf", ()) if "$ref" in part}:
        plain = merged(*(_without_references(each) for each in (one, other)))
        return {"anyOf": [*({"$ref": each} for each in sorted(refs)), *([plain] if plain else [])]}
    listed = [each.get("type", "null") for each in both]
    types = {name for each in listed for name in ([each] if isinstance(each, str) else each)}
    types -= {"integer"} if "number" in types else set()
    found: dict[str, Any] = {"type": sorted(types) if len(types) > 1 else min(types)}
    if "array" in types:
        found["items"] = reduce(merged, (each.get("items", {}) for each in both))
    objects = [each["properties"] for each in both if "properties" in each]
    if maps := [each["additionalProperties"] for each in both if "additionalProperties" in each]:
        found["additionalProperties"] = reduce(merged, [*maps, *(part for each in objects for part in each.values())])
    elif objects:
        names = sorted({name for each in objects for name in each})
        found["properties"] = {name: reduce(merged, (each.get(name, {}) for each in objects)) for name in names}
        found["required"] = sorted(set.intersection(*({*each["required"]} for each in both if "required" in each)))
    return found


def _without_references(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((each for each in schema.get("anyOf", (schema,)) if "$ref" not in each), {})


def _settled(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema as it is published: what was null whenever it was seen may be anything; keys of which none is always there are names."""
    if schema == {"type": "null"}:
        return {"$comment": "null in every test"}
    found = {**schema}
    if found.get("required") == []:
        del found["required"]
        found["additionalProperties"] = reduce(merged, found.pop("properties").values(), {})
    if "properties" in found:
        found["properties"] = {name: _settled(part) for name, part in found["properties"].items()}
    return found | {key: _settled(found[key]) for key in ("items", "additionalProperties") if key in found}


def recorded(folder: Path) -> Iterator[dict[str, Any]]:
    """Every document that was printed, and those within them."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open() as lines:
            for line in lines:
                yield from _documents(json.loads(line))


def _documents(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and is_document(value):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _documents(part)


def publish(documents: Iterable[Mapping[str, Any]]) -> None:
    """Add what documents have to the published schemas."""
    found: dict[str, dict[str, Any]] = {}
    for document in documents:
        name = document["schema"]
        if path_of(name).parent == PRINTED:
            body = _object({key: schema_of(part) for key, part in document.items()})
            found[name] = merged(found.get(name) or published(name), body)
    PRINTED.mkdir(exist_ok=True)
    for name, body in found.items():
        body["properties"]["schema"] = {"type": "string", "const": name}
        path_of(name).write_text(json.dumps({"$schema": DIALECT, "title": name} | _settled(body), indent=1) + "\n")


def published(name: str) -> dict[str, Any]:
    """The schema of a document, as it was published."""
    if not path_of(name).exists():
        return {}
    return {key: part for key, part in json.loads(path_of(name).read_text()).items() if key not in ("$schema", "title")}


if __name__ == "__main__":
    publish(recorded(Path(sys.argv[1])))
