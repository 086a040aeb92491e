"""Progress of long work on stderr: a bar in a terminal, otherwise a line every 15 seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from wastenot.cli.output import say
from wastenot.progress import Progress

_LINE_EVERY_S = 15.0


@contextmanager
def shown_progress(title: str, *, resumable: object = None) -> Iterator[Progress]:
    """Show the progress of work inside the context.

    Args:
        title: of the work.
        resumable: where measurements are kept as they are made, if the same command resumes them after Ctrl-C.
    """
    try:
        with _bar_or_lines(title) as progress:
            yield progress
    except KeyboardInterrupt:
        if resumable is not None:
            say(f"{resumable}: what was measured is kept; run the same command again to resume")
        raise


@contextmanager
def _bar_or_lines(title: str) -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield _Lines(title)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress as RichProgress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[what]}"),
    )  # fmt: skip
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, title)


class _Bar:
    def __init__(self, bar: object, title: str) -> None:
        from rich.progress import Progress as RichProgress

        assert isinstance(bar, RichProgress)
        self._bar = bar
        self._title = title
        self._task = bar.add_task(title, total=None, what="")

    def begin(self, steps: int, done: int = 0) -> None:
        self._bar.reset(self._task, total=steps, completed=done, what="")

    def step(self, what: str) -> None:
        self._bar.update(self._task, advance=1, what=what)

    def say(self, message: str) -> None:
        self._bar.console.print(message, style="yellow")


class _Lines:
    def __init__(self, title: str) -> None:
        self._title = title
        self._steps = self._done = self._done_before = 0
        self._began_s = self._last_line_s = time.monotonic()

    def begin(self, steps: int, done: int = 0) -> None:
        restarted = self._steps > 0  # work that turned out longer begins again
        self._steps, self._done, self._done_before = steps, done, done
        self._began_s = time.monotonic()
        if restarted:
            return
        self._last_line_s = self._began_s
        if done:
            print(f"{self._title}: resuming, {done} of {steps} done before", file=sys.stderr)

    def step(self, what: str) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._last_line_s >= _LINE_EVERY_S:
            self._last_line_s = now
            each_s = (now - self._began_s) / (self._done - self._done_before)
            left_s = each_s * (self._steps - self._done)
            print(f"{self._title}: {self._done} of {self._steps}, {left_s:.0f} s left; {what}", file=sys.stderr)

    def say(self, message: str) -> None:
        print(message, file=sys.stderr)
