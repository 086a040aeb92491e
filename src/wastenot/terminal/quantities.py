"""Numbers as people write them: ``2 %``, ``30 ms``, ``210 MHz``, ``300 W``. Options take these functions as ``parser``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NewType

import typer

from wastenot.core.profiles import profile_number

Floats = NewType("Floats", tuple[float, ...])
Counts = NewType("Counts", tuple[int, ...])
Names = NewType("Names", tuple[str, ...])
"""Lists in one argument, separated by commas; of a plain tuple Typer would expect an argument for each item."""

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
    return _seconds(text, "a time such as 5s, 30ms or 2min")


def _seconds(text: object, wanted: str) -> float:
    value, unit = _number(text, _SECONDS, wanted)
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


def duration(text: object) -> float:
    """A duration in seconds, at least 0."""
    value = seconds(text)
    return value if value == 0.0 else _above_0(value, text, "a time of at least 0 s, such as 5s")


def budget(text: object) -> float:
    """A duration in seconds, above 0: ``90s``, ``45m`` or ``2h``."""
    wanted = "a time above 0 s, such as 90s, 45m or 2h"
    return _above_0(_seconds(text, wanted), text, wanted)


def power(text: object) -> float:
    """A power in watts, above 0."""
    return _above_0(watts(text), text, "a power above 0 W, such as 300")


def clocks(text: str) -> Floats:
    """Clocks in MHz: ``5001,9501``."""
    wanted = "a clock in MHz above 0; write such as 5001,9501"
    return Floats(tuple(_above_0(megahertz(item), item, wanted) for item in text.split(",")))


def power_limits(text: str) -> Floats:
    """Power limits in watts: ``250,300,350``."""
    return Floats(tuple(map(power, text.split(","))))


def slowdowns(text: str) -> Floats:
    """Slowdown limits above −1: ``0,1%,0.02``."""
    limits = {item: slowdown(item) for item in text.split(",")}
    for item, limit in limits.items():
        _above_0(1.0 + limit, item, "above -1; write limits such as 0,1%,2%")
    return Floats(tuple(limits.values()))


def counts(text: str) -> Counts:
    """Whole numbers of at least 1: ``40,20,10``."""
    wrong = next((item for item in text.split(",") if not item.strip().isdecimal() or not int(item)), None)
    if wrong is not None:
        raise typer.BadParameter(f"'{wrong}' is not a whole number of at least 1; write such as 40,20,10")
    return Counts(tuple(map(int, text.split(","))))


def profiles(text: str) -> Names:
    """Workload power profiles: ``max-q,llm-training``."""
    names = text.split(",")
    wrong = next((name for name in names if profile_number(name) is None), None)
    if wrong is not None:
        raise typer.BadParameter(f"no workload power profile has the name '{wrong}'; wastenot doctor lists a card's")
    return Names(tuple(names))


def _above_0(value: float, text: object, wanted: str) -> float:
    if not 0.0 < value < math.inf:
        raise typer.BadParameter(f"'{text}' is not {wanted}")
    return value


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
