"""``wastenot monitor -- COMMAND``: what a program's GPUs use while it runs, live and in total."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from wastenot.core.errors import BadInputError
from wastenot.pages.formatting import percent, quantity, shortened
from wastenot.pages.price import Price, energy_text
from wastenot.programs.child_program import Child, exit_code, running_program
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import JsonOption, OtlpOption, PriceOptions

if TYPE_CHECKING:
    from wastenot.meters.result import GpuWindow, WindowResult
    from wastenot.meters.window import Window

SCHEMA = "wastenot.monitor/1"
CSV_COLUMNS = ("time_s", "device", "power_w", "energy_j", "core_mhz", "memory_mhz", "temperature_c", "throttled_share")
_LONGEST_NAME = 80  # of the program, in the summary


def monitor(
    command: Annotated[list[str], argument("The program and its arguments, after --.", "-- COMMAND")],
    device: Annotated[
        str, option("GPUs to watch, such as nvidia:0,nvidia:1; or sim:h200.", "D,...|all", autocompletion=completing.devices)
    ] = "all",
    csv: Annotated[Path | None, option("Write the readings of each interval to this file.", "FILE")] = None,
    interval: Annotated[
        float, option("Interval between lines shown or written, in seconds.", "S", parser=quantities.seconds)
    ] = 1.0,
    metrics_port: Annotated[
        int | None,
        option("Serve energy and power to Prometheus, and to 'wastenot serve bench --meter', on this port.", "PORT"),
    ] = None,
    metrics_host: Annotated[str, option("Listen there; 0.0.0.0 lets other machines read them.", "ADDRESS")] = "127.0.0.1",
    otlp: OtlpOption = None,
    quiet: Annotated[bool, option("Show nothing while the program runs.")] = False,
    *,
    price_options: PriceOptions,
    as_json: JsonOption = False,
) -> None:
    """Run a program and measure what its GPUs use.

    Energy with its standard error, power, clocks, throttling and cost are shown while it runs and at its end. The program
    has the terminal to itself except for a few lines at the bottom. Its exit code is that of this command (128 + n if
    signal n ended it). With --json one document is printed on stdout at the end, and what the program writes to stdout goes
    to stderr. The whole GPU is measured, whoever uses it.
    """
    from wastenot.meters.window import measure
    from wastenot.terminal.output import say

    price = price_options.price()
    if not 0.1 <= interval < float("inf"):
        raise BadInputError(f"--interval {interval}: must be at least 0.1 s")
    names = None if device == "all" else [name.strip() for name in device.split(",")]
    meter = measure(names, name=shortened(" ".join(shlex.join(command).split()), _LONGEST_NAME))
    # The file only once the program runs: one of a run before is not lost to a command that cannot be run.
    # Metrics end after the window: what a collector takes to answer is not measured.
    with _program(command, to_stderr=as_json) as child, _rows(csv) as table, ExitStack() as stack, meter as window:
        if metrics_port is not None or otlp is not None:
            from wastenot.control.metrics import window_registry

            registry = window_registry(window)
        if metrics_port is not None:
            from wastenot.control.metrics import serve_registry

            port = stack.enter_context(serve_registry(metrics_port, registry, host=metrics_host))
            say(f"metrics: http://{metrics_host}:{port}/metrics")
        if otlp is not None:
            from wastenot.control.open_telemetry import sent_metrics

            stack.enter_context(sent_metrics(otlp, registry, say))
        _watch(child, window, interval, table, shown=not quiet)
    result = window.result()
    code = exit_code(child)
    if as_json:
        from wastenot.terminal.output import print_json

        print_json("monitor", monitor_document(result, command, code, price))
    else:
        say(_summary(result, price))
    raise typer.Exit(code)


@contextmanager
def _rows(csv: Path | None) -> Iterator[IO[str] | None]:
    """The file of readings, with its heading; ``None`` where none is wanted."""
    if csv is None:
        yield None
        return
    # UTF-8 in any locale; line by line, so that the file can be followed.
    with csv.open("w", encoding="utf-8", buffering=1) as table:
        print(",".join(CSV_COLUMNS), file=table)
        yield table


@contextmanager
def _program(command: list[str], *, to_stderr: bool) -> Iterator[Child]:
    """Run a program; what keeps it from running is an error of the command line."""
    with ExitStack() as stack:
        try:
            child = stack.enter_context(running_program(command, to_stderr=to_stderr))
        except OSError as error:
            raise BadInputError(f"{command[0]}: cannot run this command: {error.strerror or error}") from error
        yield child


def _watch(child: Child, window: Window, interval_s: float, table: IO[str] | None, *, shown: bool) -> None:
    """Show and write readings until the program ends."""
    from wastenot.cli.bottom_lines import BottomLines
    from wastenot.meters.result import means_since

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
            passed = [
                means_since(old, gpu)
                for gpu, old in zip(now.gpus, before.gpus if before else [None] * len(now.gpus), strict=True)
            ]
            if table is not None:
                for gpu, latest in zip(now.gpus, passed, strict=True):
                    print(csv_row(gpu, latest), file=table)
            if bottom is not None:
                bottom.show([live_line(gpu, latest, bottom.width) for gpu, latest in zip(now.gpus, passed, strict=True)])
            before = now


_SHARED_NOTE = "several processes used the GPU; the numbers include all of them"


def csv_row(gpu: GpuWindow, latest: dict[str, float | None]) -> str:
    """A row of the CSV file, with empty cells for what the GPU does not report."""
    values: dict[str, Any] = {"time_s": gpu.time_s, "device": gpu.device, "energy_j": gpu.energy_j, **latest}
    cells = (values[name] for name in CSV_COLUMNS)
    return ",".join("" if cell is None else cell if isinstance(cell, str) else f"{cell:.6g}" for cell in cells)


def live_line(gpu: GpuWindow, latest: dict[str, float | None], width: int) -> str:
    """The present state of one GPU, cut to a terminal's width."""
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


def _summary(result: WindowResult, price: Price) -> str:
    """A summary as text."""
    from wastenot.meters.result import SHARED, THROTTLED

    lines = [f"{result.name}: {quantity(result.time_s, 's')}, {_energy(result)}{_cost_text(result, price)}"]
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
    if of.energy_j is None or of.energy_se_j is None:
        return "energy cannot be read"
    return f"{quantity(of.energy_j, 'J')} ± {quantity(of.energy_se_j, 'J', 2)}"


def _cost_text(result: WindowResult, price: Price) -> str:
    if result.energy_j is None:
        return ""
    used, cost = energy_text(result.energy_j), price.cost_text(result.energy_j)
    return f" = {used} = {cost} at {price.per_kwh:g} {price.currency} per kWh"


def monitor_document(result: WindowResult, command: list[str], code: int, price: Price) -> dict[str, Any]:
    """The JSON document."""
    from wastenot.core.values import as_values

    values = as_values(result)
    del values["name"]
    cost = None if result.energy_j is None else price.cost(result.energy_j)
    paid = {"per_kwh": price.per_kwh, "currency": price.currency, "cost": cost}
    return {"schema": SCHEMA, "command": command, "exit_code": code, **values, "price": paid}


def _text(value: float | None, form: str, unit: str) -> str:
    return "–" if value is None else f"{value:{form}} {unit}"
