"""``wastenot monitor -- COMMAND``: what a program's GPUs use while it runs, live, and at its end."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from wastenot.cli.options import CurrencyOption, JsonOption, PriceOption

if TYPE_CHECKING:
    from wastenot.measurement.window import Window
    from wastenot.measurement.window_result import GpuWindow, WindowResult
    from wastenot.report.totals import Price

SCHEMA = "wastenot.monitor/1"
KWH_J = 3.6e6
_CSV = ("time_s", "device", "power_w", "energy_j", "core_mhz", "memory_mhz", "temperature_c", "throttled_share")
_LONGEST_NAME = 80  # of the program, in the summary
_SHARED_NOTE = "several processes used the GPU; their energy is in the numbers, whoever started them"


def monitor(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="The program and its arguments, after --.")],
    device: Annotated[
        str, typer.Option("--device", metavar="D,...|all", help="GPUs to watch, such as nvidia:0,nvidia:1; or sim:h200.")
    ] = "all",
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write what each interval used to this file.")
    ] = None,
    interval: Annotated[float, typer.Option("--interval", metavar="S", help="Between lines shown or written.")] = 1.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show nothing while the program runs.")] = False,
    price_per_kwh: PriceOption = 0.15,
    currency: CurrencyOption = "USD",
    as_json: JsonOption = False,
) -> None:
    """Run a program and say what its GPUs used: energy with its error, power, clocks, throttling, cost.

    The program has the terminal to itself but for some lines at the bottom, shown only in a terminal. Its exit code is
    that of this command (128 + n where signal n ended it). With --json one document is printed on stdout at the end, and
    what the program writes to stdout goes to stderr. The whole GPU is measured, whoever uses it.
    """
    from wastenot.cli.output import say
    from wastenot.cli.plan_verbs import checked_price
    from wastenot.errors import BadInputError
    from wastenot.measurement.window import measure
    from wastenot.report.words import shortened

    price = checked_price(price_per_kwh, currency)
    if not 0.1 <= interval < float("inf"):
        raise BadInputError(f"--interval {interval}: must be at least 0.1 s")
    names = None if device == "all" else [name.strip() for name in device.split(",")]
    meter = measure(names, name=shortened(" ".join(shlex.join(command).split()), _LONGEST_NAME))
    try:
        # UTF-8 whatever the locale; line by line, so that it can be followed.
        rows = nullcontext() if csv is None else csv.open("w", encoding="utf-8", buffering=1)
    except OSError as error:
        raise BadInputError(f"--csv {csv}: cannot be written: {error.strerror}") from error
    with rows as table:
        if table is not None:
            print(",".join(_CSV), file=table)
        with _program(command, to_stderr=as_json) as child, meter as window:
            _watch(child, window, interval, table, shown=not quiet)
    result = window.result()
    code = child.returncode if child.returncode >= 0 else 128 - child.returncode
    if as_json:
        from wastenot.cli.output import print_json

        print_json(_document(result, command, code, price))
    else:
        say(described(result, price))
    raise typer.Exit(code)


@contextmanager
def _program(command: list[str], *, to_stderr: bool) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program; signals meant to end this one are passed on to it, and it is waited for."""
    from wastenot.errors import BadInputError

    sys.stdout.flush()
    sys.stderr.flush()
    try:
        child = subprocess.Popen(command, stdout=sys.stderr if to_stderr else None)
    except OSError as error:
        raise BadInputError(f"{command[0]}: cannot be run: {error.strerror or error}") from error

    def pass_on(number: int, _: object) -> None:
        # What is typed at the terminal reaches the whole group in its foreground, the program included.
        if (number == signal.SIGINT and _in_foreground()) or child.poll() is not None:
            return
        child.send_signal(number)

    known = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in known}
    try:
        yield child
    finally:
        child.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _watch(child: subprocess.Popen[bytes], window: Window, interval_s: float, table: IO[str] | None, *, shown: bool) -> None:
    """Until the program ends."""
    from wastenot.cli.bottom_lines import BottomLines

    bottom = BottomLines(sys.stderr, len(window.followers)) if shown and sys.stderr.isatty() else None
    before: WindowResult | None = None
    due = time.monotonic() + interval_s
    with bottom or nullcontext():
        while True:
            try:
                child.wait(max(due - time.monotonic(), 0.001))
                return
            except subprocess.TimeoutExpired:
                pass
            if time.monotonic() < due:
                continue
            due = max(due + interval_s, time.monotonic())
            now = window.so_far()
            if now is None:
                continue
            passed = [_since(gpu, old) for gpu, old in zip(now.gpus, before.gpus if before else now.gpus, strict=True)]
            if table is not None:
                for gpu, latest in zip(now.gpus, passed, strict=True):
                    print(_csv_row(gpu, latest), file=table)
            if bottom is not None:
                bottom.show([_line(gpu, latest, bottom.width) for gpu, latest in zip(now.gpus, passed, strict=True)])
            before = now


def _since(now: GpuWindow, before: GpuWindow) -> dict[str, float | None]:
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


def _csv_row(gpu: GpuWindow, latest: dict[str, float | None]) -> str:
    values: dict[str, Any] = {"time_s": gpu.time_s, "device": gpu.device, "energy_j": gpu.energy_j, **latest}
    cells = (values[name] for name in _CSV)
    return ",".join("" if cell is None else cell if isinstance(cell, str) else f"{cell:.6g}" for cell in cells)


def _line(gpu: GpuWindow, latest: dict[str, float | None], width: int) -> str:
    """One GPU now, cut to a terminal's width."""
    from rich.console import Console
    from rich.text import Text

    throttled = latest["throttled_share"]
    parts = [
        (f" {gpu.device} ", "bold"),
        (f"{_text(latest['power_w'], '.0f', 'W')}  ", "bold green"),
        (f"{_text(gpu.energy_j, ',.0f', 'J')} in {gpu.time_s:,.0f} s  ", ""),
        (f"core {_text(latest['core_mhz'], '.0f', 'MHz')}  memory {_text(latest['memory_mhz'], '.0f', 'MHz')}  ", ""),
        (f"{_text(latest['temperature_c'], '.0f', '°C')}  ", ""),
        (f"throttled {_text(None if throttled is None else 100.0 * throttled, '.0f', '%')}", "yellow" if throttled else "dim"),
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
    from wastenot.report.words import percent, quantity

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
    lines.extend(f"  note: {_SHARED_NOTE if flag.endswith('another process used the GPU') else flag}" for flag in result.flags
                 if not flag.endswith("throttled"))  # fmt: skip
    return "\n".join(lines)


def _energy(of: WindowResult | GpuWindow) -> str:
    from wastenot.report.words import quantity

    if of.energy_j is None or of.energy_se_j is None:
        return "energy cannot be read"
    return f"{quantity(of.energy_j, 'J')} ± {quantity(of.energy_se_j, 'J', 2)}"


def _cost_text(result: WindowResult, price: Price) -> str:
    if result.energy_j is None:
        return ""
    kwh = result.energy_j / KWH_J
    return f" = {kwh:.3g} kWh = {kwh * price.per_kwh:.2g} {price.currency} at {price.per_kwh:g} {price.currency} for a kWh"


def _document(result: WindowResult, command: list[str], code: int, price: Price) -> dict[str, Any]:
    from wastenot.cli.output import as_values

    values = as_values(result)
    del values["name"]
    cost = None if result.energy_j is None else result.energy_j / KWH_J * price.per_kwh
    paid = {"per_kwh": price.per_kwh, "currency": price.currency, "cost": cost}
    return {"schema": SCHEMA, "command": command, "exit_code": code, **values, "price": paid}


def _text(value: float | None, form: str, unit: str) -> str:
    return "–" if value is None else f"{value:{form}} {unit}"
