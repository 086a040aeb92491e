"""The file of a forecast, read again."""

from __future__ import annotations

import os

from pydantic import TypeAdapter, ValidationError

from wastenot.core.documents import first_problem, line_of
from wastenot.core.errors import BadInputError
from wastenot.core.files import read_text
from wastenot.kernels.forecast.forecast import SCHEMA, Forecast

_REMEDY = "'wastenot kernel forecast --out' writes one"


def read_forecast(path: str | os.PathLike[str]) -> Forecast:
    """Read a forecast that ``Forecast.write`` wrote.

    Raises:
        BadInputError: the file cannot be read, or is none; names file, line and field.
    """
    text = read_text(path, _REMEDY)
    try:
        found = TypeAdapter(Forecast).validate_json(text)
    except ValidationError as error:
        field, problem = first_problem(error)
        line = line_of(text, field) if field else 1
        raise BadInputError(f"{path}:{line}: {'.'.join(map(str, field)) or 'document'}: {problem}; {_REMEDY}") from error
    if found.schema != SCHEMA:
        raise BadInputError(f"{path}: schema {found.schema}, where this version reads {SCHEMA}; {_REMEDY}")
    return found
