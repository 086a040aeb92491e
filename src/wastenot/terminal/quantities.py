"""Numbers as people write them: ``2 %``, ``30 ms``, ``210 MHz``, ``300 W``. Options take these functions as ``parser``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import typer

_NUMBER = re.compile(r"([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?|[+-]?inf|nan)\s*(\D*)", re.IGNORECASE)
_AS_PRINTED = str.maketrans({"−": "-", "\u00a0": " ", "\u202f": " ", "μ": "µ"})  # what is copied from our own output

_PERCENT = {"%": 0.01}
_SECONDS = {"µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MEGAHERTZ = {"mhz": 1.0, "ghz": 1e3}
_WATTS = {"w": 1.0, "kw": 1e3}
_CELSIUS = {"c": 1.0, "°c": 1.0}


def slowdown(text: object) -> float:
    """A slowdown as a fraction: ``0.02`` or ``2%``; ``-1%`` is a speed-up. A bare 1 or more is questioned."""
    return _fraction(text, strict=True, words=("slower", "faster"))


def share(text: object) -> float:
    """A part of a whole, such as ``0.3`` or ``30%``; a bare number above 1 is questioned."""
    return _fraction(text, strict=False)


def relative(text: object) -> float:
    """A relative error or margin, such as ``0.005`` or ``0.5%``; a bare 1 or more is questioned."""
    return _fraction(text, strict=True)


def seconds(text: object) -> float:
    """A duration in seconds: ``30ms``, ``5s`` or ``2min``. A bare number is refused: it may be meant in either unit.

    0 and what is no duration in any unit (negative, infinite, NaN) are left to the option, which knows what it allows.
    """
    value, unit = _number(text, _SECONDS, "a time such as 5s, 30ms or 2min")
    if not unit and 0 < value < math.inf and isinstance(text, str):
        plain = text.strip()
        raise typer.BadParameter(f"{plain} has no unit: write {plain}ms or {plain}s")
    return value


def megahertz(text: object) -> float:
    """A clock in MHz: ``210``, ``210MHz`` or ``1.5GHz``."""
    return _number(text, _MEGAHERTZ, "a clock in MHz such as 210")[0]


def watts(text: object) -> float:
    """A power in watts: ``300``, ``300W`` or ``0.3kW``."""
    return _number(text, _WATTS, "a power in watts such as 300")[0]


def celsius(text: object) -> float:
    """A temperature in °C: ``65`` or ``65C``."""
    return _number(text, _CELSIUS, "a temperature in °C such as 65")[0]


def _fraction(text: object, *, strict: bool, words: tuple[str, str] = ("", "")) -> float:
    """A fraction, bare or with ``%``. A bare number above 1 probably means per cent, and so does 1 if ``strict``."""
    value, unit = _number(text, _PERCENT, "a fraction such as 0.02, or 2%")
    beyond = abs(value) >= 1.0 if strict else abs(value) > 1.0
    if unit or not beyond or abs(value) == float("inf"):
        return value
    whole = f"{abs(100 * value):.10g} %" if any(words) else f"{100 * value:.10g} %"
    said = f"{value:.10g} would be {whole} {words[value < 0]}".rstrip()
    possible = f"; for {100 * value:.10g} % write {100 * value:.10g}%" if strict and value > 0.0 else ""
    raise typer.BadParameter(f"{said}; for {value:.10g} % write {value:.10g}% or {value / 100:.10g}{possible}")


def _number(text: object, units: Mapping[str, float], kind: str) -> tuple[float, str]:
    """A number and the unit behind it, in the base unit where there is none."""
    if isinstance(text, float | int):  # a default
        return float(text), ""
    match = _NUMBER.fullmatch(str(text).strip().translate(_AS_PRINTED))
    unit = match[2].strip().lower() if match else ""
    if not match or (unit and unit not in units):
        raise typer.BadParameter(f"'{text}' is not {kind}")
    # Divided where the unit is a whole fraction, so that 2% is exactly 0.02.
    factor = units.get(unit, 1.0)
    number = float(match[1])
    return (number / round(1.0 / factor) if factor < 1.0 else number * factor), unit
