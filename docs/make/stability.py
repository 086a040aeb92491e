"""JSON Schemas of the files that wastenot reads back; ``python -m docs.make.stability`` writes them to ``docs/schemas``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import get_args

from pydantic import BaseModel

from docs.make.page import Page, table
from testbed.printed import SCHEMAS, file_name

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILES = {
    "wastenot.planning.plan": "plans of kernels",
    "wastenot.pipelines.plan.plan": "plans of pipelines",
    "wastenot.pipelines.model.schedule_file": "schedules of pipelines",
    "wastenot.planning.latency": "switching times",
    "wastenot.control.status": "`apply` and `tune`: how they go, and how they went",
    "wastenot.profiles.profile_file": "power inside a kernel: the document within its CSV file",
    "wastenot.serving.model.profile_file": "engine profiles",
    "wastenot.workloads.capturing.workload_file": "captured workloads",
    "wastenot.devices.simulated.preset": "simulated GPUs (TOML)",
}
"""Modules that read documents, and what these hold."""


def documents() -> dict[str, tuple[str, type[BaseModel]]]:
    """What each schema is of, and the model that reads it: the last of its module, which has the fields of those before."""
    return {schema: (what, model) for module, what in FILES.items() for schema, model in _models(module)}


def _models(module: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for model in vars(import_module(module)).values():
        own = isinstance(model, type) and issubclass(model, BaseModel) and model.__module__ == module
        if own and (field := model.model_fields.get("schema_")):
            yield get_args(field.annotation)[0], model


def text(schema: str, model: type[BaseModel]) -> str:
    """A schema as it is published."""
    body = model.model_json_schema(by_alias=True, mode="validation")
    return json.dumps({"$schema": DIALECT, **body, "title": schema}, indent=1) + "\n"


def listed() -> str:
    """A line for each schema."""
    rows = ((f"[`{name}`](schemas/{file_name(name)})", what) for name, (what, _) in documents().items())
    return table("schema | of", rows)


PAGES = (Page("stability", blocks={"schemas": listed}),)

if __name__ == "__main__":
    SCHEMAS.mkdir(exist_ok=True)
    for name, (_, model) in documents().items():
        (SCHEMAS / file_name(name)).write_text(text(name, model))
