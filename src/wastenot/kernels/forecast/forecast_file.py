"""The file of a forecast, read again."""

from __future__ import annotations

import os

from pydantic import TypeAdapter

from wastenot.core.documents import validated
from wastenot.core.files import read_text
from wastenot.kernels.forecast.forecast import SCHEMA, Forecast

_REMEDY = "'wastenot kernel forecast --out' writes one"


def read_forecast(path: str | os.PathLike[str]) -> Forecast:
    """Read a forecast that ``Forecast.write`` wrote.

    Raises:
        BadInputError: the file cannot be read, or is none; names file, line and field.
    """
    return validated(read_text(path, _REMEDY), TypeAdapter(Forecast).validate_json, SCHEMA, _REMEDY, str(path))[1]
