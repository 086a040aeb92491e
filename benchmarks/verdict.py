"""Benchmark results beside their goals."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn


class Verdict:
    """Prints results beside their goals and collects those missed."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def at_least(self, what: str, reached: float, goal: float) -> None:
        """A result that should not be smaller than its goal."""
        self._note(what, reached, f"at least {goal:g}", reached >= goal)

    def at_most(self, what: str, reached: float, goal: float) -> None:
        """A result that should not be larger than its goal."""
        self._note(what, reached, f"at most {goal:g}", reached <= goal)

    def end(self) -> NoReturn:
        """End the process, with 1 if a goal was missed."""
        sys.exit(f"missed: {', '.join(self.missed)}" if self.missed else None)

    def _note(self, what: str, reached: float, goal: str, good: bool) -> None:
        print(f"  {'ok    ' if good else 'MISSED'} {what}: {reached:.4g} ({goal})", flush=True)
        if not good:
            self.missed.append(what)


def run_alone(main: Callable[..., object], *arguments: object) -> NoReturn:
    """Run one benchmark by itself, with its arguments."""
    verdict = Verdict()
    main(verdict, *arguments)
    verdict.end()
