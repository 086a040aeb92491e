"""What the program prints with ``--json`` while tests run is held to its published schema.

Where ``WASTENOT_DOCUMENTS`` names a folder, it is recorded there instead, for ``python -m docs.make.printed``.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from wastenot.core import values
from wastenot.serving import documents
from wastenot.terminal import output

SCHEMAS = Path(__file__).parents[1] / "docs" / "schemas"
PRINTED = SCHEMAS / "printed"
_MORE_THAN_FILES = ("wastenot.latency/1", "wastenot.profile/1")
"""Documents that, when they are printed, also say to which files they were written."""

printed: list[dict[str, Any]] = []
"""What was printed since the last check."""


def file_name(schema: str) -> str:
    """Of ``wastenot.plan/1``, ``plan-1.json``."""
    return schema.removeprefix("wastenot.").replace("/", "-") + ".json"


def path_of(schema: str) -> Path:
    """Where the schema of a printed document is published: where that of files is, if it is what such a file holds."""
    of_files = SCHEMAS / file_name(schema)
    return of_files if of_files.exists() and schema not in _MORE_THAN_FILES else PRINTED / of_files.name


def is_document(value: Any) -> bool:
    """Whether a JSON value names its schema."""
    return isinstance(value, dict) and str(value.get("schema", "")).startswith("wastenot.")


def watch() -> None:
    """Note what is printed inside this process from now on."""
    text_of, event_of = values.json_text, documents.event_document

    def json_text(document: object) -> str:
        text = text_of(document)
        printed.append(json.loads(text))
        return text

    def event_document(event: Any) -> dict[str, Any]:
        printed.append(event_of(event))
        return printed[-1]

    values.json_text = output.json_text = json_text
    documents.event_document = event_document


def check() -> None:
    """Fail unless all that was printed since the last check is as it was published."""
    seen = [*filter(is_document, printed)]
    printed.clear()
    if seen and (folder := os.environ.get("WASTENOT_DOCUMENTS")):
        with Path(folder, f"{os.getpid()}.jsonl").open("a") as file:
            file.writelines(json.dumps(each) + "\n" for each in seen)
        return
    for document in seen:
        assert path_of(document["schema"]).exists(), f"{document['schema']} has no schema: docs/make/printed.py writes it"
        error = next(iter(_validator(document["schema"]).iter_errors(document)), None)
        assert error is None, (
            f"{document['schema']} differs from {path_of(document['schema'])} at {error.json_path}: {error.message[:500]}. "
            "A new key is published by docs/make/printed.py; what readers may rely on stays"
        )


@cache
def _validator(schema: str) -> Any:
    import jsonschema
    from referencing import Registry
    from referencing.retrieval import to_cached_resource

    read = to_cached_resource(loads=lambda text: closed(json.loads(text)))(lambda uri: (SCHEMAS / uri).read_text())
    place = path_of(schema).relative_to(SCHEMAS).as_posix()
    return jsonschema.Draft202012Validator({"$ref": place}, registry=Registry(retrieve=read))  # type: ignore[call-arg]


def closed(schema: Any) -> Any:
    """The same schema, by which objects have no keys but those it lists, and what is unknown is null.

    Readers are told of both: that keys may be added, and of the nulls, which hang on the machine that a test runs on.
    """
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {key: closed(value) for key, value in schema.items()}
    if isinstance(parts.get("type"), str | list):
        parts["type"] = sorted({*([parts["type"]] if isinstance(parts["type"], str) else parts["type"]), "null"})
    return {"additionalProperties": False} | parts if "type" in parts and "properties" in parts else parts
