"""Numbers as people read them: percentages, joules, seconds, clocks; for tables, pages and figures."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from wastenot.core import setting as settings
from wastenot.core.origin import Origin
from wastenot.core.setting import Setting

MINUS = "\N{MINUS SIGN}"
SPACE = "\N{NO-BREAK SPACE}"  # a number and its unit stay on one line

ORIGIN_TEXT: dict[Origin, str] = {
    "measured": "on the device named here",
    "simulated": "from a simulated GPU, not a real one",
    "synthetic": "synthetic, for a demonstration, not measured",
    "forecast": "from other measurements, not measured itself",
}

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def percent(fraction: float, digits: int = 2, *, sign: bool = False) -> str:
    """A fraction in per cent, without a minus before zero: ``0.1029`` is ``10.29 %``."""
    value = round(100.0 * fraction, digits)
    if value == 0.0:
        return f"{0.0:.{digits}f}{SPACE}%"
    shown = f"{abs(value):,.{digits}f}" if abs(value) < 1e6 else f"{abs(value):.3g}"
    return f"{MINUS if value < 0 else '+' if sign else ''}{shown}{SPACE}%"


def fraction_of_whole(fraction: float) -> str:
    """A fraction of a whole to a tenth of a per cent, ``<0.1 %`` if less."""
    return f"<0.1{SPACE}%" if 0.0 < fraction < 0.0005 else percent(fraction, 1)


def percent_met(fraction: float) -> str:
    """A fraction of requests in per cent, never rounded up: ``100.00 %`` is all of them."""
    return percent(math.floor(1e4 * fraction + 1e-6) / 1e4)


def change(ratio: float | None, digits: int = 2) -> str:
    """A change from auto, always with its sign; a dash for ``None``."""
    return "–" if ratio is None else percent(ratio, digits, sign=True)


def digits_within(interval: tuple[float, float] | None) -> int:
    """Digits after the decimal point that mean something: the second one where an interval is narrow enough for it.

    Args:
        interval: of a change, as fractions; without one nothing says how sure the change is, and two are shown.
    """
    if interval is None:
        return 2
    return 2 if 50.0 * abs(interval[1] - interval[0]) < 0.1 else 1


def changes(interval: tuple[float, float], digits: int | None = None) -> str:
    """Both ends of an interval of changes, by default to the digits that it allows: ``−3.1 % to −2.1 %``."""
    digits = digits_within(interval) if digits is None else digits
    return f"{change(interval[0], digits)} to {change(interval[1], digits)}"


def pace(time_change: float, digits: int = 2) -> str:
    """A change of time in words: ``0.07 % faster``."""
    return f"{percent(abs(time_change), digits)} {'slower' if time_change >= 0.0 else 'faster'}"


def saved_range(
    interval: tuple[float, float], digits: int | None = None, *, what: str = "saved", name: str = "energy"
) -> str:
    """An interval of changes beside a saving: ``1.4 % to 2.1 % saved``; with its signs where it may be a loss.

    Args:
        interval: the least and the greatest change.
        digits: after the decimal point; by default those that the interval allows.
        what: a fall is called.
        name: of the quantity, where signs are shown.
    """
    low, high = interval
    digits = digits_within(interval) if digits is None else digits
    if high >= 0.0:
        return f"{name} {changes(interval, digits)}"
    return f"{percent(-high, digits)} to {percent(-low, digits)} {what}"


def quantity(value: float, unit: str, digits: int = 4) -> str:
    """A quantity with a suitable prefix: ``0.0119`` s is ``11.9 ms``."""
    size = abs(value)
    if size == 0.0 or not math.isfinite(size):
        return f"{value:g}{SPACE}{unit}"
    factor, prefix = next(((factor, prefix) for factor, prefix in _PREFIXES if size >= factor), _PREFIXES[-1])
    # Kilojoules only where plain joules would be long: 3,133 J reads better than 3.133 kJ.
    if prefix == "k" and size < 1e5:
        factor, prefix = 1.0, ""
    return f"{number(value / factor, digits)}{SPACE}{prefix}{unit}"


def round_quantity(value: float, unit: str) -> str:
    """A quantity that is probably a round number, without needless digits: ``30 ms`` rather than ``30.0 ms``."""
    figures, prefixed = quantity(value, unit, 3).split(SPACE)
    return f"{float(figures.replace(',', '')):g}{SPACE}{prefixed}"


def number(value: float, digits: int = 4) -> str:
    """A number to ``digits`` significant digits, thousands separated; in scientific notation only if vast or tiny."""
    if value == 0.0:
        return "0"
    size = abs(value)
    if not 1e-6 <= size < 1e12:
        return f"{value:.{digits - 1}e}".replace("-", MINUS)
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}".replace("-", MINUS)


def megahertz(clock_mhz: float | None) -> str:
    """A clock: ``auto``, or the number without needless digits, thousands separated."""
    return "auto" if clock_mhz is None else f"{clock_mhz:,.6g}"


setting_text = partial(settings.setting_text, number=",.0f", space=SPACE)


def clocks_text(setting: Setting) -> str:
    """Core and memory clock, in this order in every table of kernels, then what else is set: ``1,410 / auto, 175 W``."""
    others = setting_text(replace(setting, core_mhz=None, memory_mhz=None), "")
    return f"{megahertz(setting.core_mhz)} / {megahertz(setting.memory_mhz)}{', ' if others else ''}{others}"


def duration(seconds: float, digits: int = 2) -> str:
    """A duration as a person says it: ``45 s``, ``12 min``, ``7.8 h``, ``3.9 days``."""
    for least_s, unit_s, unit in ((48 * 3600.0, 24 * 3600.0, "days"), (5400.0, 3600.0, "h"), (90.0, 60.0, "min")):
        if seconds >= least_s:
            return f"{number(seconds / unit_s, digits)}{SPACE}{unit}"
    return f"{max(seconds, 0.0):.0f}{SPACE}s" if seconds >= 1.0 else "less than a second"


def shortened(name: str, length: int) -> str:
    """A name without its middle if it is longer than ``length``: both ends of a kernel's name carry meaning."""
    if len(name) <= length:
        return name
    head = (length - 1 + 1) // 2
    return f"{name[:head]}…{name[len(name) - (length - 1 - head) :]}"
