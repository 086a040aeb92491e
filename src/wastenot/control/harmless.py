"""What of ours fails in someone's program is told once; then nothing more is tried there, and the program continues.

Loaded into other people's programs, so it imports nothing but the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Harmless:
    """Calls that cannot end a program.

    Args:
        afterwards: is called once, after the first fault was told.
        consequence: what becomes of the program.

    Attributes:
        afterwards: likewise; may be set later.
        broken: whether something has failed.
    """

    def __init__(
        self,
        afterwards: Callable[[], object] = lambda: None,
        consequence: str = "the program continues without the plan, at the default clocks",
    ) -> None:
        self._consequence = consequence
        self.afterwards = afterwards
        self.broken = False

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call it, unless something has failed before; ``None`` where it fails."""
        if self.broken:
            return None
        try:
            return function(*arguments, **named)
        except Exception as error:  # whatever it is, the program's own work is worth more
            self.fail(error)
            return None

    def fail(self, error: Exception) -> None:
        """Tell of a fault, and give up; only the first is told."""
        if self.broken:
            return
        self.broken = True
        with suppress(Exception):
            name = "" if type(error).__module__.startswith("wastenot.") else f"{type(error).__name__}: "
            print(f"wastenot: {name}{error}; {self._consequence}", file=sys.stderr)
        with suppress(Exception):
            self.afterwards()
