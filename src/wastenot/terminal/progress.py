"""Progress of long work on stderr: a bar in a terminal, otherwise a line every 15 seconds.

What a narrow terminal leaves out first is the description of the step, then the time that has passed, then the bar, then the
title; the count and the time left are always there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from wastenot.core.processes import Terminated
from wastenot.core.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

_LINE_EVERY_S = 15.0
_LEAST_BAR, _MOST_BAR = 10, 30
_LEAST_TITLE = 6


@contextmanager
def shown_progress(title: str) -> Iterator[Progress]:
    """Show the progress of work inside the context, from its first step on.

    Args:
        title: of the work.
    """
    if not sys.stderr.isatty():
        yield _Lines(title)
        return
    from rich.console import Console

    bar = Bar(title, Console(stderr=True))
    try:
        yield bar
    finally:
        bar.end()


@contextmanager
def kept_if_interrupted(message: str | Callable[[], str]) -> Iterator[None]:
    """Let Ctrl-C, or a signal to terminate, say what is kept and how to resume; otherwise it says that nothing is kept."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as error:
        said = message if isinstance(message, str) else message()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(*(error.args or (said,))) from None
        print(said, file=sys.stderr)
        raise


def resume_with(command: str, where: object) -> Callable[[], str]:
    """What Ctrl-C says where a study keeps each measurement as it is made; its file begins with the first."""

    def said() -> str:
        if "://" not in str(where) and not Path(str(where)).exists():
            return f"{where}: nothing has been measured yet; start again: {command}"
        return f"{where}: measurements are kept; resume: {command}"

    return said


class _Count:
    """Steps done, and how long the others will take if they take as long as those."""

    def __init__(self) -> None:
        self.steps = self.done = self._done_before = 0
        self._began_s = time.monotonic()

    def begin(self, steps: int, done: int) -> None:
        self.steps, self.done, self._done_before = steps, done, done
        self._began_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def left_s(self) -> float | None:
        """``None`` before the first step."""
        taken = self.done - self._done_before
        return None if taken <= 0 else self.elapsed_s / taken * max(self.steps - self.done, 0)


class Bar:
    """A bar in a terminal.

    Args:
        title: of the work.
        console: of the terminal.
    """

    def __init__(self, title: str, console: Console) -> None:
        from rich.live import Live

        self._title, self._what, self._count = title, "", _Count()
        self._live = Live(self, console=console, transient=True, refresh_per_second=4)

    def begin(self, steps: int, done: int = 0) -> None:
        """Work begins."""
        self._count.begin(steps, done)
        self._what = ""
        self._live.start()

    def step(self, what: str) -> None:
        """One more step is done."""
        self._count.done += 1
        self._what = what

    def say(self, message: str) -> None:
        """Something a person should know, above the bar."""
        from rich.text import Text

        self._live.console.print(Text(message, style="yellow"))

    def end(self) -> None:
        """Remove the bar."""
        self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        count = self._count
        yield bar_line(options.max_width, self._title, count.done, count.steps, count.elapsed_s, count.left_s, self._what)


def bar_line(width: int, title: str, done: int, steps: int, elapsed_s: float, left_s: float | None, what: str) -> Text:
    """A line of progress that fits into a number of columns; the count and the time left are never cut."""
    from rich.text import Text

    count = f"{done:,}/{steps:,}"
    left = f"{'-:--' if left_s is None else _clock(left_s)} left"
    room = width - len(count) - len(left) - 2
    shown = Text(_cut(title, max(room, 0)) if room >= _LEAST_TITLE else "", style="bold", no_wrap=True, end="")
    room -= len(shown) + 1
    if room > _LEAST_BAR:
        length = min(room - 1, _MOST_BAR)
        full = round(length * min(done / max(steps, 1), 1.0))
        shown.append(" ").append("━" * full, "green").append("━" * (length - full), "bright_black")
        room -= length + 1
    shown.append(f" {count}" if shown else count, "not bold green").append(f" {left}", "not bold cyan")
    passed = f" {_clock(elapsed_s)} elapsed"
    if room >= len(passed):
        shown.append(passed, "not bold bright_black")
        room -= len(passed)
        if room > _LEAST_BAR:
            step = next((text for text in (what, what.partition(" at ")[0]) if len(text) <= room - 2), "")
            shown.append(f"  {step}" if step else "", "not bold")
    return shown


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Lines:
    def __init__(self, title: str) -> None:
        self._title, self._count = title, _Count()
        self._last_line_s = time.monotonic()

    def begin(self, steps: int, done: int = 0) -> None:
        restarted = self._count.steps > 0  # work that turned out longer begins again
        self._count.begin(steps, done)
        if restarted:
            return
        self._last_line_s = time.monotonic()
        if done:
            print(f"{self._title}: resuming, {done:,} of {steps:,} measurements already done", file=sys.stderr)

    def step(self, what: str) -> None:
        count = self._count
        count.done += 1
        now = time.monotonic()
        if now - self._last_line_s >= _LINE_EVERY_S:
            self._last_line_s = now
            left = f"{_clock(count.left_s or 0.0)} left"
            print(f"{self._title}: {count.done:,} of {count.steps:,}, {left}; {what}", file=sys.stderr)

    def say(self, message: str) -> None:
        print(message, file=sys.stderr)
