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
from typing import IO, TYPE_CHECKING, Annotated

import typer

from wastenot.cli.monitor_text import CSV_COLUMNS, csv_row, described, live_line, monitor_document, since
from wastenot.cli.options import CurrencyOption, JsonOption, PriceOption

if TYPE_CHECKING:
    from wastenot.metering.result import WindowResult
    from wastenot.metering.window import Window

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LONGEST_NAME = 80  # of the program, in the summary


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
    from wastenot.errors import BadInputError
    from wastenot.metering.window import measure
    from wastenot.reporting.formatting import shortened
    from wastenot.reporting.price import Price

    price = Price(price_per_kwh, currency)
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
            print(",".join(CSV_COLUMNS), file=table)
        with _program(command, to_stderr=as_json) as child, meter as window:
            _watch(child, window, interval, table, shown=not quiet)
    result = window.result()
    code = child.returncode if child.returncode >= 0 else 128 - child.returncode
    if as_json:
        from wastenot.cli.output import print_json

        print_json(monitor_document(result, command, code, price))
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

    # One that is ignored, as under nohup, stays so.
    numbers = [number for number in _PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in numbers}
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
            passed = [since(gpu, old) for gpu, old in zip(now.gpus, before.gpus if before else now.gpus, strict=True)]
            if table is not None:
                for gpu, latest in zip(now.gpus, passed, strict=True):
                    print(csv_row(gpu, latest), file=table)
            if bottom is not None:
                bottom.show([live_line(gpu, latest, bottom.width) for gpu, latest in zip(now.gpus, passed, strict=True)])
            before = now
