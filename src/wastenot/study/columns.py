"""Columns that give only values of the kind they are declared to hold.

SQLite keeps any value in any column, so a damaged file gives texts for numbers; nothing that reads a study has to expect it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import sqlalchemy
from sqlalchemy import Dialect, TypeDecorator


class DamagedValueError(ValueError):
    """A study holds what wastenot never writes."""


class _Checked(TypeDecorator[Any]):
    kinds: ClassVar[tuple[type, ...]]

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """The value, if it is one of these kinds or null."""
        if value is None or isinstance(value, self.kinds):
            return value
        raise DamagedValueError(f"{value!r:.40} is stored where a value of another kind belongs")


class Integer(_Checked):
    """A whole number."""

    impl, kinds, cache_ok = sqlalchemy.Integer, (int,), True


class BigInteger(_Checked):
    """A whole number of 64 bits."""

    impl, kinds, cache_ok = sqlalchemy.BigInteger, (int,), True


class Double(_Checked):
    """A number."""

    impl, kinds, cache_ok = sqlalchemy.Double, (float, int), True


class String(_Checked):
    """A text of a greatest length."""

    impl, kinds, cache_ok = sqlalchemy.String, (str,), True


class Text(_Checked):
    """A text."""

    impl, kinds, cache_ok = sqlalchemy.Text, (str,), True
