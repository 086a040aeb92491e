"""What ``wastenot monitor`` shows: a line for each GPU while a program runs, rows of a table, and the summary at its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wastenot.metering.result import GpuWindow, WindowResult
    from wastenot.reporting.price import Price

SCHEMA = "wastenot.monitor/1"
KWH_J = 3.6e6
CSV_COLUMNS = ("time_s", "device", "power_w", "energy_j", "core_mhz", "memory_mhz", "temperature_c", "throttled_share")
_SHARED_NOTE = "several processes used the GPU; their energy is in the numbers, whoever started them"


def since(now: GpuWindow, before: GpuWindow) -> dict[str, float | None]:
    """Means since the time before; of all of it the first time."""
    first = before is now
    seconds = now.time_s if first else now.time_s - before.time_s

    def difference(new: float | None, old: float | None) -> float | None:
        if new is None or seconds <= 0.0:
            return None
        return new / seconds if first else None if old is None else (new - old) / seconds

    def total(mean: float | None, length: float) -> float | None:
        return None if mean is None else mean * length

    return {
        "power_w": difference(now.energy_j, before.energy_j),
        **{
            name: difference(total(getattr(now, name), now.time_s), total(getattr(before, name), before.time_s))
            for name in ("core_mhz", "memory_mhz", "temperature_c", "throttled_share")
        },
    }


def csv_row(gpu: GpuWindow, latest: dict[str, float | None]) -> str:
    """A row of the table, empty where the GPU does not tell."""
    values: dict[str, Any] = {"time_s": gpu.time_s, "device": gpu.device, "energy_j": gpu.energy_j, **latest}
    cells = (values[name] for name in CSV_COLUMNS)
    return ",".join("" if cell is None else cell if isinstance(cell, str) else f"{cell:.6g}" for cell in cells)


def live_line(gpu: GpuWindow, latest: dict[str, float | None], width: int) -> str:
    """One GPU now, cut to a terminal's width."""
    from rich.console import Console
    from rich.text import Text

    share = latest["throttled_share"]
    throttled = f"throttled {_text(None if share is None else 100.0 * share, '.0f', '%')}"
    parts = [
        (f" {gpu.device} ", "bold"),
        (f"{_text(latest['power_w'], '.0f', 'W')}  ", "bold green"),
        (f"{_text(gpu.energy_j, ',.0f', 'J')} in {gpu.time_s:,.0f} s  ", ""),
        (f"core {_text(latest['core_mhz'], '.0f', 'MHz')}  memory {_text(latest['memory_mhz'], '.0f', 'MHz')}  ", ""),
        (f"{_text(latest['temperature_c'], '.0f', '°C')}  ", ""),
        (throttled, "yellow" if share else "dim"),
    ]
    text = Text.assemble(*parts)
    if gpu.origin != "measured":
        text.append(f"  {gpu.origin}", "magenta")
    text.truncate(width)
    console = Console(file=sys.stderr, width=width)
    with console.capture() as caught:
        console.print(text, end="", no_wrap=True)
    return caught.get()


def described(result: WindowResult, price: Price) -> str:
    """A summary for people."""
    from wastenot.metering.result import SHARED, THROTTLED
    from wastenot.reporting.formatting import percent, quantity

    lines = [f"{result.name}: {quantity(result.time_s, 's')}, {_energy(result)}{_cost_text(result, price)}"]
    if result.origin != "measured":
        lines[0] += f" ({result.origin})"
    several = len(result.gpus) > 1
    for gpu in result.gpus:
        known = [
            "" if not several else _energy(gpu),
            "" if gpu.mean_power_w is None else f"mean power {quantity(gpu.mean_power_w, 'W')}",
            "" if gpu.memory_energy_j is None else f"memory {quantity(gpu.memory_energy_j, 'J')}",
            "" if gpu.core_mhz is None else f"core {gpu.core_mhz:.0f} MHz",
            "" if gpu.memory_mhz is None else f"memory {gpu.memory_mhz:.0f} MHz",
            "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C",
            "" if gpu.throttled_share is None else f"throttled {percent(gpu.throttled_share, 0)} of the time",
        ]
        lines.append(f"  {gpu.device} ({gpu.model}): " + ", ".join(part for part in known if part))
    notes = [flag.replace(SHARED, _SHARED_NOTE) for flag in result.flags if not flag.endswith(THROTTLED)]
    lines.extend(f"  note: {note}" for note in notes)
    return "\n".join(lines)


def _energy(of: WindowResult | GpuWindow) -> str:
    from wastenot.reporting.formatting import quantity

    if of.energy_j is None or of.energy_se_j is None:
        return "energy cannot be read"
    return f"{quantity(of.energy_j, 'J')} ± {quantity(of.energy_se_j, 'J', 2)}"


def _cost_text(result: WindowResult, price: Price) -> str:
    if result.energy_j is None:
        return ""
    kwh = result.energy_j / KWH_J
    return f" = {kwh:.3g} kWh = {kwh * price.per_kwh:.2g} {price.currency} at {price.per_kwh:g} {price.currency} for a kWh"


def monitor_document(result: WindowResult, command: list[str], code: int, price: Price) -> dict[str, Any]:
    """The JSON document."""
    from wastenot.cli.output import as_values

    values = as_values(result)
    del values["name"]
    cost = None if result.energy_j is None else result.energy_j / KWH_J * price.per_kwh
    paid = {"per_kwh": price.per_kwh, "currency": price.currency, "cost": cost}
    return {"schema": SCHEMA, "command": command, "exit_code": code, **values, "price": paid}


def _text(value: float | None, form: str, unit: str) -> str:
    return "–" if value is None else f"{value:{form}} {unit}"
