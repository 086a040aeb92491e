"""JSON documents read into validated models, so that an error names the file, the line and the field."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from wastenot.core.errors import BadInputError
from wastenot.core.files import read_text

Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(min_length=1)]

Model = TypeVar("Model", bound=BaseModel)
Content = TypeVar("Content")

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class Part(BaseModel):
    """A JSON object of a document: immutable, its types exact, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


class SparsePart(Part):
    """A part that is written without what is at its default, so that a file from before these fields keeps its digest."""

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name, default in _defaults(type(self)).items():
            if getattr(self, name) == default:
                written.pop(name, None)
        return written


@cache
def _defaults(part: type[Part]) -> dict[str, Any]:
    return {name: field.default for name, field in part.model_fields.items() if not field.is_required()}


@dataclass(frozen=True, slots=True)
class Document(Generic[Model]):
    """A document that was read.

    Attributes:
        where: how errors name it, such as its path.
        remedy: how to get a good one; ends every error message.
        text: the JSON text.
        values: the same, parsed.
        content: the same, validated.
    """

    where: str
    remedy: str
    text: str
    values: dict[str, Any]
    content: Model

    def error(self, field: Sequence[int | str], problem: str) -> BadInputError:
        """An error about one field, given by its keys and indices from the root."""
        return _error(self.where, self.text, field, problem, self.remedy)


def read_document(path: str | os.PathLike[str], model: type[Model], remedy: str) -> Document[Model]:
    """Read a JSON file.

    Args:
        path: the file.
        model: what it holds; its ``schema`` field names the version.
        remedy: how to get a good file, such as ``make a plan with 'wastenot kernel plan'``.

    Raises:
        BadInputError: the file cannot be read or breaks a rule of the model; names file, line and field.
    """
    text = read_text(path, remedy)
    return parse_document(text, model, remedy, str(path))


def parse_document(text: str, model: type[Model], remedy: str, where: str) -> Document[Model]:
    """As :func:`read_document`, from a text; ``where`` is how errors name it."""
    (schema,) = get_args(model.model_fields["schema_"].annotation)
    values, content = validated(text, model.model_validate_json, schema, remedy, where)
    return Document(where, remedy, text, values, content)


def validated(
    text: str, validate: Callable[[str], Content], schema: str, remedy: str, where: str
) -> tuple[dict[str, Any], Content]:
    """A JSON document of a schema: its values, and what they are as something else.

    Args:
        text: of the document.
        validate: makes something of it; raises ValidationError where it breaks a rule.
        schema: that it must have.
        remedy: as for :func:`read_document`.
        where: how errors name it.

    Raises:
        BadInputError: it breaks a rule; names file, line and field.
    """
    constants: list[str] = []

    def not_a_number(name: str) -> float:
        constants.append(name)
        return float(name)

    try:
        values = json.loads(text, parse_constant=not_a_number)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{where}:{getattr(error, 'lineno', 1)}: document: is not JSON ({error}); {remedy}") from error
    if not isinstance(values, dict):
        raise _error(where, text, (), "is not a JSON object", remedy)
    if values.get("schema") != schema:
        problem = f"is {values.get('schema')!r}, where this version reads {schema!r}"
        raise _error(where, text, ("schema",), problem, remedy)
    try:
        content = validate(text)
    except ValidationError as error:
        field, problem = first_problem(error)
        raise _error(where, text, field, problem, remedy) from error
    if constants:
        raise _error(where, text, (), f"{constants[0]} is not a number that JSON can hold", remedy)
    return values, content


def content_digest(document: Mapping[str, Any]) -> str:
    """The digest of what a document says, by which an edit is noticed: of all of it but the digest that it states."""
    content = {name: value for name, value in document.items() if name != "digest"}
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def first_problem(error: ValidationError) -> tuple[tuple[int | str, ...], str]:
    """The field and the problem that a validation met first."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "unexpected_keyword_argument":  # of a dataclass; a model says it as follows
        return first["loc"], "Extra inputs are not permitted"
    return first["loc"], str(first["msg"]).removeprefix("Value error, ")


def _error(where: str, text: str, field: Sequence[int | str], problem: str, remedy: str) -> BadInputError:
    name = ".".join(map(str, field)) or "document"
    return BadInputError(f"{where}:{line_of(text, field)}: {name}: {problem}; {remedy}")


def line_of(text: str, field: Sequence[int | str]) -> int:
    """The line (from 1) of a field in a valid JSON text, or of the deepest parent that is there.

    Args:
        text: a JSON document.
        field: keys and indices from the root.
    """
    position = _skip_space(text, 0)
    for step in field:
        inner = _child(text, position, step)
        if inner is None:
            break
        position = inner
    return text.count("\n", 0, position) + 1


def _child(text: str, position: int, step: int | str) -> int | None:
    """Position of one member of the object or array that begins at ``position``."""
    opening = text[position : position + 1]
    if opening not in ("{", "["):
        return None
    position = _skip_space(text, position + 1)
    index = 0
    while text[position : position + 1] not in ("}", "]", ""):
        key: int | str = index
        if opening == "{":
            key, end = _DECODER.raw_decode(text, position)
            position = _skip_space(text, _skip_space(text, end) + 1)  # past the colon
        if key == step:
            return position
        _, end = _DECODER.raw_decode(text, position)
        position = _skip_space(text, end)
        if text[position : position + 1] == ",":
            position = _skip_space(text, position + 1)
        index += 1
    return None


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
